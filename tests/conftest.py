"""What all tests share: programs this small are compiled longer than they run.

LLVM is told not to try hard, here and in the processes that tests start; XLA's own passes, which
decide what is computed and in which buffers, stay as they are. A quarter of the suite's time.
What is compiled is kept on disk while the tests run: a second training of the same, in this process
or another, compiles nothing. Where compiling anew is the point, a test turns that off.

The environment's HKLM_BRIEF_TESTS=1 leaves out whatever takes long on a second version of
Python: what is left is layers, models and losses. Its LSTM_IMPL stands in for `auto`,
so that all tests can run without the fast path.
"""

import gc
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
      "data", "experiments", "inference", "interop", "purity", "report", "training",
      "doctest_test.py", "heads_run_test.py", "lstm_impl_test.py", "model_gradients_test.py",
      "readme_test.py", "resume_test.py", "safetensors_test.py", "soak_test.py",
      "trainer_test.py", "watching_test.py", "nn/heads_test.py", "nn/inputs_test.py",
      "nn/lstm_test.py", "nn/minimal_test.py", "nn/mogrifier_test.py", "nn/qrnn_test.py",
      "nn/sampled_test.py", "nn/scans_test.py", "nn/sharded_test.py", "nn/varying_test.py",
      "nn/zoo_cells_test.py"]

BY_NUMPY = ("model_test", "losses_test")  # of these, what is held against NumPy is left

# Files are handed out to workers whole: those that take longest first, so that no worker waits long
# for another at the end.
LONGEST = ("library_test", "soak_test", "readme_test", "mesh_test", "doctest_test", "models_test",
           "resume_test", "zoo_test", "devices_test", "processes_test", "sharded_test",
           "varying_test")


# What tracing makes lives long: to look through all of it every few thousand objects finds little.
gc.set_threshold(100_000, 20, 100)


def pytest_configure(config):
  config.option.loadscopereorder = False  # of xdist: by the number of tests


def pytest_collection_modifyitems(items):
  if os.environ.get("HKLM_BRIEF_TESTS") == "1":
    items[:] = [item for item in items if item.path.stem not in BY_NUMPY or "numpy" in item.name]
  items.sort(key=lambda item: item.path.stem not in LONGEST)


if os.environ.get("LSTM_IMPL"):
  from hklm import model

  chosen = model._lstm_impl
  model._lstm_impl = lambda config: (
      os.environ["LSTM_IMPL"] if config.lstm_impl == "auto" else chosen(config))
