"""What every binary does alike: UTF-8, one-line errors, exit statuses, `--debug`.

A binary is `def main(): ...` and `if __name__ == "__main__": cli.run(main)`. User mistakes
(`InputError`, `OSError`) end in one line on standard error and exit status 1.
"""

import errno
import os
import signal
import sys
import tempfile

import jax
from absl import app, flags, logging

import hklm
from hklm import run as runs
from hklm.data import base
from hklm.errors import InputError

flags.DEFINE_bool("debug", False, "Show a traceback with an error.")


def run(main, names=()):
  """Runs `main()` as an absl program. Never returns.

  Args:
    main: the program; it reads `absl.flags.FLAGS`.
    names: the flags it reads. Another one of ours is refused: it would change nothing.
  """
  if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:  # see the package's first lines
    signal.signal(signal.SIGINT, signal.default_int_handler)
  if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
    signal.signal(signal.SIGTERM, _ended)
  for name in ("stdout", "stderr"):
    if getattr(sys, name) is None:  # closed by whoever started us
      setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
  for stream in (sys.stdout, sys.stderr):
    # Whatever the locale, text is UTF-8; a path that is not can still be named in a message.
    stream.reconfigure(encoding="utf-8", errors="backslashreplace")
  # absl's default would print the notes of libraries among ours, tracebacks in them; what matters
  # is raised.
  logging.set_verbosity(logging.FATAL)
  sys.unraisablehook = lambda unused_args: None  # tensorstore's threads, after a disk was full
  app.run(lambda unused_argv: _guarded(main),
          flags_parser=lambda argv: _parse_flags(argv, names))


def _ended(unused_number, unused_frame):
  """SIGTERM: what is open is put in order first, so that nothing half-written stays."""
  sys.exit(128 + signal.SIGTERM)


def note(message: str):
  """One line of log on standard error, at once."""
  try:
    print(message, file=sys.stderr, flush=True)
  except BrokenPipeError:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def announce_device():
  """The first line of a log: what the numbers are computed on."""
  devices = jax.devices()
  note(f"device: {len(devices)} x {devices[0].device_kind} (jax {jax.__version__})")


def load_run() -> runs.Run:
  """The run that `--run_dir` and `--checkpoint` name."""
  run_dir = flags.FLAGS.run_dir
  if not run_dir:
    raise InputError("--run_dir is not given; needed: a run directory that train wrote")
  enable_x64_for(runs.read_config(os.path.abspath(run_dir)).model)
  return hklm.load_run(run_dir, flags.FLAGS.checkpoint)


def enable_x64_for(model: hklm.ModelConfig):
  """Switches 64-bit numbers on if the model asks for them."""
  if model.dtype == "float64":
    jax.config.update("jax_enable_x64", True)


def _parse_flags(argv, names):
  for name in names:  # so that --help shows them
    flags.FLAGS.register_key_flag_for_module(argv[0], flags.FLAGS[name])
  try:
    positional = flags.FLAGS(argv)[1:]
  except (flags.Error, OSError, ValueError) as error:  # the last two: a --flagfile, unreadable
    _fail(error)
  for flag in flags.FLAGS.flags_by_module_dict().get("experiments.flags", ()):
    if flag.present and flag.name not in names:
      _fail(f"--{flag.name} is not a flag of this program; needed: one that --help shows")
  if positional:
    _fail(f"found the argument {positional[0]!r}, but every value goes with a flag: --name=value")
  return argv[:1]


def _guarded(main):
  try:
    main()
    sys.stdout.flush()
  except BrokenPipeError:  # the reader, `head` for example, has seen enough
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
  except KeyboardInterrupt:
    note("interrupted")
    sys.exit(130)
  except (InputError, OSError) as error:
    if flags.FLAGS.debug:
      raise
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and not error.filename:
      _fail(f"standard output or {tempfile.gettempdir()}: {error.strerror}; needed: room there")
    _fail(error)
  except jax.errors.JaxRuntimeError as error:
    if flags.FLAGS.debug or "RESOURCE_EXHAUSTED" not in str(error):
      raise
    _fail(f"out of memory ({str(error).splitlines()[0]}); lower --batch_size, --bptt, "
          "--hidden_size, --vocab_size, --samples or --cache_size")


def _fail(error):
  note("error: " + base.printable(" ".join(str(error).split())))  # names may come from a file
  sys.exit(1)
