"""A check leaves no trace itself."""

import builtins
import contextlib
import copy
import gc
import io
import logging
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from absl.testing import absltest, parameterized

from hklm import purity
from hklm.purity.values import fingerprint
from tests.inference import compilations
from tests.purity import faulty

ROOT = pathlib.Path(__file__).parents[2]

calls = 0
history = []
settings = {"rate": [1.0]}


def upset(x, ending=None):
  """Changes all it can reach, then raises, if asked to."""
  global calls
  calls += 1
  history.append(x)
  settings["rate"][0] += 1
  settings["new"] = x
  Kept.count += 1
  upset.__dict__["mark"] = x
  globals()["left"] = x
  random.random()
  np.random.normal()
  os.environ["HKLM_PURITY_LEFT"] = "1"
  os.chdir("/")
  sys.path.append("nowhere")
  sys.argv.append("--more")
  np.seterr(divide="ignore")
  jax.config.update("jax_debug_infs", True)
  logging.getLogger("hklm_purity_test").setLevel(logging.ERROR)
  warnings.simplefilter("error")
  sys.setrecursionlimit(sys.getrecursionlimit() + 1)
  builtins.left_behind = x
  print("out")
  sys.stderr.write("err")
  sys.stdin.readline()
  sys.stdout = io.StringIO()
  if ending:
    raise ending("on purpose")
  return x


class Kept:
  count = 0


def open_files():
  """What this process holds open, and nothing that waits for the collector to close it."""
  gc.collect()
  folder, links = "/proc/self/fd", []
  for number in os.listdir(folder) if os.path.isdir(folder) else ():
    with contextlib.suppress(FileNotFoundError):  # the listing itself was open
      links.append((int(number), os.readlink(f"{folder}/{number}")))
  return sorted(links)


def world():
  """All that `upset` changes, as values and identities."""
  return {
      "names": sorted(name for name in globals() if not name.startswith("__")),
      "values": fingerprint((calls, history, settings, dict(vars(Kept)), upset.__dict__)),
      "identities": (id(history), id(settings), id(settings["rate"])),
      "generators": fingerprint((random.getstate(), np.random.get_state())),
      "environment": dict(os.environ), "content": id(os.environ._data), "folder": os.getcwd(),
      "path": list(sys.path), "arguments": list(sys.argv), "errors": np.geterr(),
      "jax": dict(jax.config.values), "filters": list(warnings.filters),
      "limit": sys.getrecursionlimit(), "builtins": sorted(vars(builtins)),
      "streams": (sys.stdin, sys.stdout, sys.stderr, builtins.input),
      "writers": [vars(stream).get("write") for stream in (sys.stdout, sys.stderr)
                  if hasattr(stream, "__dict__")],
      "hooks": (sys.getprofile(), sys.gettrace(), threading.excepthook),
      "handle": logging.Logger.handle,
      "level": logging.getLogger("hklm_purity_test").level,
      "open files": open_files(),
      "keyboard": os.fstat(0).st_ino,
  }


class BehaviourTest(parameterized.TestCase):

  def setUp(self):
    super().setUp()
    self.enter_context(mock.patch.object(builtins, "_", "the last answer", create=True))

  def assert_world_is(self, before):
    for name, value in world().items():
      self.assertEqual(value, before[name], name)

  @parameterized.parameters(None, ValueError, SystemExit, RecursionError)
  def test_everything_is_put_back(self, ending):
    before = world()
    report = purity.check(upset, 1, ending)
    self.assert_world_is(before)
    whats = {finding.what for finding in report.findings}
    self.assertContainsSubset({
        "changes global `calls`", "changes global `history`", "changes global `settings`",
        "changes class attribute `Kept.count`", "changes `upset`.mark", "changes global `left`",
        "advances the generator of `random`", "advances the generator of `numpy.random`",
        "changes the environment", "changes the working directory", "changes `sys.path`",
        "changes `sys.argv`", "changes NumPy's error handling", "changes jax.config",
        "changes a logger's level", "changes the warning filters", "changes the recursion limit",
        "replaces a builtin", "writes to standard output", "writes to standard error",
        "reads standard input", "replaces `sys.stdout`"}, whats)

  def test_an_interrupt_goes_through_and_all_is_put_back(self):
    before = world()
    with self.assertRaises(KeyboardInterrupt):
      purity.check(upset, 1, KeyboardInterrupt)
    self.assert_world_is(before)

  def test_prints_nothing(self):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
      purity.check(upset, 1)
      purity.check(faulty.log, 1)
      purity.check(faulty.issue_warning, 1)
    self.assertEqual((out.getvalue(), err.getvalue()), ("", ""))

  def test_input_that_never_pleases_comes_to_an_end(self):
    def ask(x):
      while input("well? ") != "yes":
        pass
      return x
    report = purity.check(ask, 1)
    self.assertEqual(report.findings[0].what, "reads standard input")
    self.assertStartsWith(report.unchecked[0], "it raised EOFError")

  def test_input_does_not_wait_for_a_terminal(self):
    code = ("from hklm import purity\n"
            "def ask(x):\n  input()\n  return x\n"
            "print(purity.check(ask, 1).verdict)")
    read, write = os.pipe()  # nothing is ever written: a read would wait
    try:
      done = subprocess.run([sys.executable, "-c", code], stdin=read, capture_output=True,
                            text=True, timeout=120, check=True)
    finally:
      os.close(read)
      os.close(write)
    self.assertEqual(done.stdout, "impure\n")

  def test_compiled_functions_stay_compiled(self):
    @jax.jit
    def inner(x):
      return jnp.sin(x)
    @jax.jit
    def outer(x):
      return inner(x) + 1
    x = jnp.ones(3)
    outer(x), inner(x)
    self.assertTrue(purity.check(outer, x).pure)
    with compilations.counted() as names:
      outer(x), inner(x)
    self.assertEmpty(names)

  def test_what_jax_keeps_compiled_on_disk_is_its_own(self):
    code = ("import jax, jax.numpy as jnp\n"
            "from hklm import purity\n"
            "report = purity.check(jax.jit(lambda x: 2 * x), jnp.ones(3))\n"
            "print(report.verdict)")
    with tempfile.TemporaryDirectory() as folder:
      settings = {"JAX_COMPILATION_CACHE_DIR": folder,
                  "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                  "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
      for _ in range(2):  # written, then read
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              cwd=ROOT, env=os.environ | settings, timeout=300, check=True)
        self.assertEqual(done.stdout, "pure\n")
        self.assertNotEmpty(os.listdir(folder))

  def test_importing_it_leaves_compiled_functions_compiled(self):
    code = ("import jax, jax.numpy as jnp, hklm\n"
            "from tests.inference import compilations\n"
            "f, x = jax.jit(lambda x: 2 * x), jnp.ones(3)\n"
            "f(x)\n"
            "import hklm.purity\n"
            "with compilations.counted() as names: f(x)\n"
            "print(names)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT,
                          env=os.environ | {"PYTHONPATH": str(ROOT)}, timeout=300, check=True)
    self.assertEqual(done.stdout, "[]\n")

  def test_arguments_keep_value_and_identity(self):
    args = ([1, {"a": np.ones(2)}], jnp.ones(3), jax.random.key(1))
    before, saved = [id(part) for part in (args[0], args[0][1], args[0][1]["a"])], copy.copy(args)
    def spoil(xs, array, key):
      xs[1]["a"] += 1
      xs.append(array)
      return key
    self.assertFalse(purity.check(spoil, *args).pure)
    self.assertEqual([id(part) for part in (args[0], args[0][1], args[0][1]["a"])], before)
    self.assertTrue(all(now is then for now, then in zip(args, saved, strict=True)))
    np.testing.assert_array_equal(args[0][1]["a"], 1)
    self.assertLen(args[0], 2)

  def test_what_cannot_be_put_back_is_said(self):
    numbers = (n for n in range(100))
    def draw(x):
      return x + next(numbers)
    report = purity.check(draw, 1)
    self.assertFalse(report.pure)
    self.assertTrue(any("could not be put back" in reason for reason in report.unchecked), report)

  def test_open_files_stand_where_they_stood(self):
    path = os.path.join(self.enter_context(tempfile.TemporaryDirectory()), "text")
    with open(path, "w+") as file:
      file.write("one\ntwo\n")
      file.seek(0)
      def read(x):
        file.write("three")
        return file.readline() * x
      self.assertFalse(purity.check(read, 1).pure)
      self.assertEqual(file.tell(), 0)
      self.assertEqual(file.read(), "one\ntwo\n")

  def test_streams_stay_open(self):
    class Stream(io.TextIOWrapper):  # of a class of one's own, as pytest's
      pass
    stream = Stream(io.BytesIO(), "utf-8")
    def write(x, out=stream.write):
      out("text")
      return x
    self.assertEqual([finding.what for finding in purity.check(write, 1).findings],
                     ["changes files"])
    gc.collect()
    self.assertFalse(stream.closed)

  def test_two_processes_at_once(self):
    code = ("from hklm import purity\nfrom tests.purity import faulty\n"
            "print([purity.check(f, 1).verdict for f in (faulty.now, faulty.warn, abs) * 3])")
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                                  cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
                 for _ in range(2)]
    for process in processes:
      self.assertEqual(process.communicate(timeout=300)[0],
                       f"{['impure', 'impure', 'pure'] * 3}\n")

  def test_inside_another_check(self):
    def checks(x):
      return purity.check(faulty.warn, x).verdict
    before = world()
    report = purity.check(checks, 1)
    self.assertTrue(report.pure, report)
    self.assert_world_is(before)

  def test_in_another_thread(self):
    reports = []
    thread = threading.Thread(target=lambda: reports.append(purity.check(faulty.now, 1)))
    thread.start()
    thread.join()
    self.assertEqual([finding.what for finding in reports[0].findings], ["reads the clock"])

  def test_profilers_and_tracers_go_on(self):
    seen = []
    def trace(frame, event, argument):
      seen.append(event)
    former = sys.gettrace(), sys.getprofile()
    sys.settrace(trace)
    sys.setprofile(trace)
    try:
      purity.check(faulty.warn, 1)
      self.assertIs(sys.gettrace(), trace)
      self.assertIs(sys.getprofile(), trace)
    finally:
      sys.settrace(former[0])
      sys.setprofile(former[1])

  def test_a_clock_in_the_machine_beneath_is_nobodys(self):
    # jax reads clocks while it compiles; a function that makes it compile reads none.
    report = purity.check(lambda x: jax.jit(lambda y: y * time.struct_time.n_fields)(x), 1.0)
    self.assertTrue(report.pure, report)


if __name__ == "__main__":
  absltest.main()
