"""Binaries as processes that are still running, to be met by signals; only one's own are ended."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from tests.experiments import binaries

PATIENCE = 240.0  # seconds
# What runs in the background ignores Ctrl-C, and so does what it starts.
HEED = ("import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_DFL); "
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])")


class Child:
  """`python -m experiments.MODULE FLAGS`, started; ended at the end of a `with` block.

  Attributes:
    sent: the signals sent so far.
  """

  def __init__(self, module: str, *flags: str):
    """Starts it."""
    self.sent: list[int] = []
    self._folder = tempfile.TemporaryDirectory()
    with open(self._path("out"), "wb") as out, open(self._path("err"), "wb") as err:
      self._process = subprocess.Popen(
          [sys.executable, "-c", HEED, "-m", f"experiments.{module}", *flags], cwd=binaries.ROOT,
          stdin=subprocess.DEVNULL, stdout=out, stderr=err)

  def __enter__(self):
    return self

  def __exit__(self, *unused):
    self._process.kill()  # nothing, where it has ended
    self._process.wait()
    self._folder.cleanup()

  @property
  def stdout(self) -> str:
    """What it has printed so far."""
    return self._read("out")

  @property
  def stderr(self) -> str:
    """The same, of its log."""
    return self._read("err")

  def maps(self, library: str) -> bool:
    """Whether it has begun to import a compiled library."""
    with open(f"/proc/{self._process.pid}/maps", "rb") as file:
      return library.encode() in file.read()

  def limit_files_to(self, size: int):
    """From now on its writing more than so many bytes to a file fails, as on a full disk."""
    resource.prlimit(self._process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

  def runs(self) -> bool:
    """Whether it has not ended yet."""
    return self._process.poll() is None

  def wait_until(self, happened: Callable[[], object]) -> bool:
    """Returns as soon as it has happened or the process has ended; whether it runs still."""
    started = time.monotonic()
    while self.runs() and not happened():
      if time.monotonic() - started > PATIENCE:
        raise TimeoutError(self.stderr)
      time.sleep(0.003)
    return self.runs()

  def send(self, number: int):
    """Sends a signal; nothing happens if the process has ended."""
    self.sent.append(number)
    self._process.send_signal(number)

  def end(self) -> int:
    """Waits for its end and gives its status: minus the number of a signal that ended it."""
    return self._process.wait(PATIENCE)

  def _path(self, name):
    return os.path.join(self._folder.name, name)

  def _read(self, name):
    with open(self._path(name), encoding="utf-8") as file:
      return file.read()
