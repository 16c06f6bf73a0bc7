"""Runs a module of tests in a process that sees several devices: how many is fixed at the start."""

import os
import subprocess
import sys

ASKED = "HKLM_TEST_DEVICES"


def run(module: str, count: int):
  """What came of `python -m module` where JAX sees `count` CPU devices.

  Args:
    module: the test module; there, `inside` is true.
    count: devices.
  """
  flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
  return subprocess.run([sys.executable, "-m", module], stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT, text=True, check=False,
                        env=os.environ | {"XLA_FLAGS": flags.strip(), ASKED: str(count)})


def inside() -> bool:
  """Whether this process was started by `run`."""
  return ASKED in os.environ
