"""Which calls ask the world, or change it: clock, entropy, files, processes, the network.

Two witnesses. `sys.setprofile` tells of every C function that Python code calls, however it was
imported or named. An audit hook tells of files, processes and sockets, with their names; since
Python cannot remove one, a single hook is installed by the first check, and sleeps outside checks.
"""

import datetime
import dis
import importlib
import io
import os
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import NamedTuple

from hklm.purity.parts import MACHINE, is_a, top
from hklm.purity.report import Rule
from hklm.purity.territory import Territory, is_engine

_KINDS = {
    "clock": (Rule.SAME_OUTPUT, "reads the clock", "take the time as an argument"),
    "entropy": (Rule.SAME_OUTPUT, "draws entropy from the system",
                "take a key (jax.random) or a seed as an argument"),
    "system": (Rule.SAME_OUTPUT, "asks the system", "take what it tells as an argument"),
    "read": (Rule.SAME_OUTPUT, "reads files", "read them outside, take the content as an argument"),
    "write": (Rule.NO_TRACE, "changes files", "return what is to be written"),
    "process": (Rule.NO_TRACE, "starts or signals processes", "do it outside and take the result"),
    "network": (Rule.NO_TRACE, "uses the network", "do it outside and take the result"),
    "person": (Rule.SAME_OUTPUT, "reads standard input", "take what is read as an argument"),
}

# Functions by module. The names that a platform lacks are passed over.
_FUNCTIONS = {
    ("time", "clock"): "time time_ns monotonic monotonic_ns perf_counter perf_counter_ns "
                       "process_time process_time_ns thread_time thread_time_ns clock_gettime "
                       "clock_gettime_ns",
    ("posix", "entropy"): "urandom getrandom",
    ("_uuid", "entropy"): "generate_time_safe UuidCreate",
    ("posix", "system"): "getpid getppid getcwd getcwdb getlogin getuid geteuid getgid times "
                         "getloadavg uname cpu_count get_terminal_size",
    ("resource", "system"): "getrusage",
    ("_socket", "system"): "gethostname",
    ("_thread", "system"): "get_ident get_native_id",
    ("posix", "read"): "stat lstat access readlink statvfs",
}
# What the interpreter announces, by kind.
_AUDITED = {event: kind for kind, events in {
    "read": "os.listdir os.scandir glob.glob",
    "write": "os.mkdir os.remove os.rename os.rmdir os.link os.symlink os.truncate os.chmod "
             "os.utime sqlite3.connect",
    "process": "os.system os.exec os.fork os.forkpty os.posix_spawn os.kill subprocess.Popen",
    "network": "socket.connect socket.bind socket.sendto socket.getaddrinfo socket.gethostbyname",
    "person": "builtins.input",
}.items() for event in events.split()}
# These read the clock only when they are given fewer arguments than this.
_CLOCK_UNLESS = {"localtime": 1, "gmtime": 1, "ctime": 1, "asctime": 1, "strftime": 2}
# What else is told by name and owner.
_NAMES = frozenset({*_CLOCK_UNLESS, "seed", "now", "utcnow", "today", "readline", "read",
                    "readlines", "isatty", "write", "writelines"})
# Modules of the standard library through which a call still counts as the user's.
_ASK_CLOCK = frozenset({"datetime", "_pydatetime", "uuid", "timeit"})
_ASK_ENTROPY = frozenset({"random", "secrets", "uuid", "tempfile"})
_ASK_SYSTEM = frozenset({"platform", "multiprocessing", "getpass"})
_CALLERS = frozenset({"hklm.purity.session", "hklm.purity.tracing"})
_OUTWARD = frozenset({"read", "write", "process", "network"})  # through NumPy they count, too
# Reading source files for a message or an import is not the function's doing.
_TOOLS = frozenset({"importlib", "zipimport", "linecache", "tokenize", "inspect", "traceback",
                    "logging", "warnings", "threading", "contextlib"})

# Where jax keeps compiled programs on disk, if told to, through packages that are not its own.
_COMPILED_STORE = "jax._src.compilation_cache"


class Event(NamedTuple):
  """A call that was noticed.

  Attributes:
    rule: the rule that it breaks.
    what: what it does.
    detail: the function that was called.
    remedy: what to do instead.
    frame_place: "file:line" in the user's code.
    module: the Haiku module at work, or empty.
  """

  rule: Rule
  what: str
  detail: str
  remedy: str
  frame_place: str
  module: str


def _table() -> dict[int, tuple[str, Callable]]:
  """Kinds and functions by identity; the functions are kept, so that identities stay true."""
  table = {}
  for (module_name, kind), names in _FUNCTIONS.items():
    try:
      module = importlib.import_module(module_name)
    except ImportError:
      continue
    for name in names.split():
      if hasattr(module, name):
        table[id(getattr(module, name))] = kind, getattr(module, name)
  return table


_BY_IDENTITY = _table()
_FILES = (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom, io.FileIO)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class Witness:
  """Notices calls of this thread inside its `with`.

  Args:
    territory: whose code counts as the user's.
    current_module: tells the Haiku module at work.
    closely: whether to follow every call into C, which is slow; else only what is audited.
  """

  def __init__(self, territory: Territory, current_module: Callable[[], str], closely: bool):
    self.noticed: list[Event] = []
    self._territory = territory
    self._current_module = current_module
    self._closely = closely
    self._stdin = {id(stream) for stream in (sys.stdin, sys.__stdin__) if stream is not None}

  def __enter__(self):
    _install_audit_hook()
    self._former = sys.getprofile(), _listeners.get(threading.get_ident())
    _listeners[threading.get_ident()] = self._audit
    if self._closely:
      sys.setprofile(self._profile)
    return self

  def __exit__(self, *exc):
    profile, listener = self._former
    if hasattr(profile, "enable"):  # cProfile's is no function
      profile.enable()
    else:
      sys.setprofile(profile)
    if listener:
      _listeners[threading.get_ident()] = listener
    else:
      del _listeners[threading.get_ident()]

  def _profile(self, frame, event, called):
    if event == "c_call" and (id(called) in _BY_IDENTITY or called.__name__ in _NAMES):
      kind = self._kind(called, frame)
      if kind:
        owner = getattr(called, "__module__", None)
        name = getattr(called, "__qualname__", "?")
        self._note(kind, f"{owner}.{name}" if owner else name, frame)

  def _audit(self, event, details, frame):
    kind = _AUDITED.get(event)
    if event == "open":
      path, mode, flags = details
      if isinstance(path, int):  # a stream around what is open
        return
      written = set(mode or "") & set("wxa+") or (not mode and (flags or 0) & _WRITING)
      self._note("write" if written else "read", repr(path), frame)
    elif kind and details[:1] != (":memory:",):
      self._note(kind, event if kind == "person" else f"{event} {details[0]!r:.80}", frame)

  def _note(self, kind, detail, frame):
    place = blamed(frame, self._territory, kind)
    if kind == "person" and id(sys.stdin) not in self._stdin:
      return  # the user has put another in its place
    if kind == "entropy" and _seeds_numpy(frame):
      return
    if place is not None:
      rule, what, remedy = _KINDS[kind]
      self.noticed.append(Event(rule, what, detail, remedy, place, self._current_module()))

  def _kind(self, called, frame) -> str:
    known = _BY_IDENTITY.get(id(called))
    if known:
      return known[0]
    name = called.__name__
    if name in _CLOCK_UNLESS and getattr(called, "__module__", "") == "time":
      return "clock" if _arguments(frame) < _CLOCK_UNLESS[name] else ""
    owner = getattr(called, "__self__", None)
    if name == "seed" and is_a(owner, random.Random) and frame.f_locals.get("a", 0) is None:
      return "entropy"
    if name in ("now", "utcnow", "today") and isinstance(owner, type) and issubclass(
        owner, datetime.date):
      return "clock"
    if name in ("readline", "read", "readlines") and id(owner) in self._stdin:
      return "person"
    if is_a(owner, _FILES):
      if name == "isatty":
        return "system"
      if name in ("write", "writelines") and owner not in (sys.stdout, sys.stderr):
        return "write"
    return ""


_listeners: dict[int, Callable] = {}  # by thread; empty outside checks
_hooked = threading.Event()


def _install_audit_hook():
  if not _hooked.is_set():
    _hooked.set()
    sys.addaudithook(_hear)


def _hear(event, details):
  if _listeners and (event == "open" or event in _AUDITED):
    listener = _listeners.get(threading.get_ident())
    if listener:
      listener(event, details, sys._getframe(1))


def _seeds_numpy(frame) -> bool:
  """Whether NumPy asks, for a generator that is given its seed: `RandomState(0)` draws 128 bits
  and drops them."""
  return (frame.f_code.co_name == "getrandbits" and frame.f_locals.get("k") == 128
          and _arguments(frame.f_back) > 0)


def _arguments(frame) -> int:
  """How many arguments the call that a frame is making has; many if that cannot be told."""
  offset = frame.f_lasti
  for op in dis.get_instructions(frame.f_code):
    if op.offset == offset:
      return op.arg if op.opname in ("CALL", "CALL_KW", "PRECALL") else 99
  return 99


def blamed(frame: types.FrameType, territory: Territory, kind: str = "") -> str | None:
  """Where the user's code made a call, or None where others made it for their own ends.

  Args:
    frame: the frame that calls.
    territory: whose code counts as the user's.
    kind: the kind of call, which decides what parts of the standard library may be between.

  Returns:
    "file:line" of the nearest frame in the user's code, or None.
  """
  direct = True  # until the first frame outside the standard library
  while frame is not None:
    name = str(frame.f_globals.get("__name__", ""))
    package = top(name)
    if is_engine(frame.f_globals):  # what is called from here directly is what is checked
      return "" if name in _CALLERS else None
    if package == "_pytest" or name == _COMPILED_STORE:
      return None
    if territory.owns_globals(frame.f_globals):
      return f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if frame.f_code.co_filename.startswith("<frozen importlib") or (kind and package in _TOOLS):
      return None
    standard = package in sys.stdlib_module_names or name.startswith("absl.logging")
    if direct and standard and (
        (kind == "clock" and package not in _ASK_CLOCK)
        or (kind == "entropy" and package not in _ASK_ENTROPY)
        or (kind == "system" and package not in _ASK_SYSTEM)):
      return None
    if direct and not standard and package in MACHINE and not (
        package == "numpy" and kind in _OUTWARD):
      return None
    direct = direct and standard
    frame = frame.f_back
  return None
