"""The one exception that means: the user can mend this."""


class InputError(ValueError):
  """Something the user gave is wrong: a flag, a file, a size.

  The message is one line: what was found, what is needed, which flag to change.
  Binaries print it without a traceback and exit with status 1.
  """
