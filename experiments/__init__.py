"""What a user starts; each of them is `python -m experiments.NAME`."""

import signal
import sys

# Importing takes seconds, in which Ctrl-C would end in a traceback: until `cli.run` it just ends.
# Only where a program of this package is being started: Python says so by this name for it.
if sys.argv[:1] == ["-m"] and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
  signal.signal(signal.SIGINT, signal.SIG_DFL)
