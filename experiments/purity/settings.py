"""Settings that a program keeps as attributes of a module, as many do."""

verbosity = 0
precision = 3
