"""The exceptions that mean: the user can mend this, and: the user wanted it so."""


class InputError(ValueError):
  """Something the user gave is wrong: a flag, a file, a size.

  The message is one line: what was found, what is needed, which flag to change.
  Binaries print it without a traceback and exit with status 1.
  """


class Stopped(Exception):
  """A run was asked to end before its last update, and has been saved.

  The message is one line that says how to go on.
  """
