"""Several processes that make one update together: how they meet, and how they stop together."""

import jax
from jax.experimental import multihost_utils

from hklm.errors import InputError
from hklm.training import meeting

TIMEOUT = 300  # seconds that processes wait for each other at the start


def start(coordinator: str, count: int, index: int, timeout: int = TIMEOUT):
  """Meets the other processes; before anything else that asks for a device.

  From then on `jax.devices()` are those of all processes. If one of them dies, the others wait for
  it for most of a minute or longer, and are then ended by JAX. SIGTERM no longer ends a process:
  see `stop_wanted`.

  Args:
    coordinator: `host:port` of the first process, where it waits for the others.
    count: processes in all; 1: nothing is done.
    index: of this process, from 0.
    timeout: seconds to wait for the others.

  Raises:
    InputError: an index out of range, no address, processes that do not come.

  >>> start("", count=2, index=2)
  Traceback (most recent call last):
  hklm.errors.InputError: --process_index=2 is out of range; needed: 0 to 1, for --process_count=2
  """
  if count < 1:
    raise InputError(f"--process_count={count} is out of range; needed: 1 or more")
  if not 0 <= index < count:
    raise InputError(f"--process_index={index} is out of range; needed: 0 to {count - 1}, for "
                     f"--process_count={count}")
  host, _, port = coordinator.rpartition(":")
  if count > 1 and not (host and port.isdecimal() and 0 < int(port) < 2**16):
    raise InputError(f"--coordinator={coordinator} is no address; needed: host:port of the first "
                     f"process, for --process_count={count}")
  if count == 1:
    return
  meeting.wait(host, int(port), count, index, timeout)
  jax.distributed.initialize(coordinator, count, index, initialization_timeout=timeout)


def is_first() -> bool:
  """Whether this process is the one that writes and says what is to be written and said once.

  >>> is_first()
  True
  """
  return jax.process_index() == 0


def wait_for_all(name: str):
  """Returns when every process has called it with this name; of one process, at once.

  Args:
    name: what they wait for.

  >>> wait_for_all("nothing")
  """
  multihost_utils.sync_global_devices(name)


def stop_wanted(step: int) -> bool:
  """Whether all processes are to stop after update `step`, since one of them got a SIGTERM.

  Every process asks after every update. The answer is the same for all, true at one update alone,
  a few after the signal came. Of one process it is false: that one has its own handler.

  Args:
    step: updates made.

  >>> stop_wanted(1)
  False
  """
  return multihost_utils.reached_preemption_sync_point(step)
