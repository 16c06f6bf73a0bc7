"""Processes wait for each other before JAX's own start, which ends a process that waits in vain.

The first listens at the address that JAX will use, the others tell it their number; when all have
come it lets them go on. So a process that is missing, or there twice, is named.
"""

import socket
import time

from hklm.errors import InputError

PAUSE = 0.2  # seconds between attempts to reach the first process


def wait(host: str, port: int, count: int, index: int, timeout: float):
  """Returns when all have come.

  Args:
    host: of the first process.
    port: at which it listens until then; free again after.
    count: processes in all.
    index: of this one.
    timeout: seconds.

  Raises:
    InputError: not all came in time, a number came twice, another count, a port that is taken.
  """
  deadline = time.monotonic() + timeout
  if index == 0:
    _gather(port, count, deadline, timeout)
  else:
    _join(host, port, count, index, deadline, timeout)


def _gather(port, count, deadline, timeout):
  both = socket.has_dualstack_ipv6()
  came: dict[int, socket.socket] = {}
  try:
    try:
      server = socket.create_server(("", port), dualstack_ipv6=both,
                                    family=socket.AF_INET6 if both else socket.AF_INET)
    except OSError as error:
      raise InputError(f"--coordinator: port {port} cannot be listened at ({error}); needed: a "
                       "free port of this machine, that of the first process") from error
    with server:
      while len(came) < count - 1:
        server.settimeout(max(0.001, deadline - time.monotonic()))
        try:
          peer, _ = server.accept()
        except TimeoutError:
          missing = ", ".join(str(n) for n in range(1, count) if n not in came)
          raise InputError(f"no process came with --process_index {missing} within {timeout:.0f} "
                           f"seconds; needed: --process_count={count} processes, each with this "
                           "--coordinator") from None
        _admit(peer, came, count)
    for peer in came.values():
      peer.sendall(b"+")
  finally:
    for peer in came.values():
      peer.close()


def _admit(peer, came, count):
  peer.settimeout(5)  # for a stranger who says nothing
  try:
    theirs, index = map(int, peer.recv(100).split())
  except (OSError, ValueError):  # a stranger
    peer.close()
    return
  if index in came or theirs != count:
    peer.close()
    raise InputError(f"a process came with --process_index={index} --process_count={theirs}; "
                     f"needed: each index once, and --process_count={count} as here")
  came[index] = peer


def _join(host, port, count, index, deadline, timeout):
  while time.monotonic() < deadline:
    try:
      with socket.create_connection((host, port), timeout=5) as first:
        first.sendall(f"{count} {index}".encode())
        first.settimeout(max(0.001, deadline - time.monotonic()))
        answer = first.recv(1)
    except OSError:  # not there yet
      time.sleep(PAUSE)
      continue
    if not answer:
      raise InputError("the first process has sent this one away, or has ended; needed: see there")
    return
  raise InputError(f"--coordinator={host}:{port}: the {count} processes did not meet within "
                   f"{timeout:.0f} seconds; needed: all of them started, and the address of the "
                   "first")
