"""Counts what XLA compiles."""

import contextlib
import logging

import jax


class _Names(logging.Handler):

  def __init__(self):
    super().__init__()
    self.names = []

  def emit(self, record):
    message = record.getMessage()
    if message.startswith("Finished XLA compilation of "):
      self.names.append(message.split()[4])


@contextlib.contextmanager
def counted():
  """Within it, the list it gives grows by a name for each program that is compiled."""
  handler, logger = _Names(), logging.getLogger("jax")
  propagate = logger.propagate
  logger.addHandler(handler)
  logger.propagate = False  # the log is read here and nowhere else
  try:
    with jax.log_compiles():
      yield handler.names
  finally:
    logger.removeHandler(handler)
    logger.propagate = propagate
