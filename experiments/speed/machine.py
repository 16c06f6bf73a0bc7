"""What the figures were measured on. Imports nothing that takes memory."""

import importlib.metadata
import importlib.util
import os
import platform

PACKAGES = ("jax", "jaxlib", "dm-haiku", "optax", "numpy", "flax", "torch")


def cores() -> int:
  """How many cores this process may use."""
  if hasattr(os, "sched_getaffinity"):
    return len(os.sched_getaffinity(0))
  return os.cpu_count()


def memory_bytes() -> int:
  """How much memory the machine has."""
  return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def description() -> dict:
  """Processor, cores, Python and the versions of the packages at work, as JSON values."""
  return {"cpu": _cpu(), "cores": cores(), "python": platform.python_version(),
          **{package: importlib.metadata.version(package) for package in PACKAGES
             if importlib.util.find_spec(package.removeprefix("dm-"))}}


def _cpu() -> str:
  try:
    with open("/proc/cpuinfo", encoding="utf-8") as file:
      names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
  except OSError:  # no Linux
    names = []
  return names[0] if names else platform.processor() or platform.machine()
