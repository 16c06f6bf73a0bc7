"""What all tests share: programs this small are compiled longer than they run.

LLVM is told not to try hard, here and in the processes that tests start; XLA's own passes, which
decide what is computed and in which buffers, stay as they are. A quarter of the suite's time.
What is compiled is kept on disk while the tests run: a second training of the same, in this process
or another, compiles nothing. Where compiling anew is the point, a test turns that off.

The environment's HKLM_BRIEF_TESTS=1 leaves out the binaries, the purity checker and what takes
longest: what is left is models, losses, training and scoring. Its LSTM_IMPL stands in for `auto`,
so that all tests can run without the fast path.
"""

import os
import tempfile

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["XLA_FLAGS"] = f"{QUICK} {os.environ.get('XLA_FLAGS', '')}".strip()
programs = tempfile.TemporaryDirectory()
os.environ |= {"JAX_COMPILATION_CACHE_DIR": programs.name,
               "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
               "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}

if os.environ.get("HKLM_BRIEF_TESTS") == "1":
  collect_ignore = [
      "experiments", "purity", "report", "doctest_test.py", "readme_test.py", "resume_test.py",
      "soak_test.py", "data/encoding_memory_test.py", "training/memory_test.py",
      "training/mesh_test.py", "training/processes_test.py"]

if os.environ.get("LSTM_IMPL"):
  from hklm import model

  chosen = model._lstm_impl
  model._lstm_impl = lambda config: (
      os.environ["LSTM_IMPL"] if config.lstm_impl == "auto" else chosen(config))
