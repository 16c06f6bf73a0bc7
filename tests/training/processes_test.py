"""Several processes over the loopback address: the losses of one device, and a common end."""

import concurrent.futures
import json
import os
import socket
import subprocess
import sys
import time

import numpy as np
from absl.testing import absltest, parameterized

from hklm.data.streams import Streams
from hklm.errors import InputError
from hklm.training import meeting, processes
from tests.training import mesh_test, peer

NONE = "^None$"  # no error
SECONDS = 240  # in which two small processes must be done, whatever else the machine does


def free_port():
  with socket.create_server(("127.0.0.1", 0)) as server:
    return server.getsockname()[1]


class ProcessesTest(parameterized.TestCase):

  def peers(self, count, devices, vocab_shards):
    """What each of them prints."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={devices}"
    command = [sys.executable, "-m", peer.__name__, f"127.0.0.1:{free_port()}", str(count)]
    started = [subprocess.Popen([*command, str(index), str(vocab_shards)], text=True,
                                env=os.environ | {"XLA_FLAGS": flags.strip()},
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for index in range(count)]
    try:
      said = [process.communicate(timeout=SECONDS) for process in started]
    finally:
      for process in started:
        process.kill()
        process.wait()
    for process, (_, errors) in zip(started, said, strict=True):
      self.assertEqual(process.returncode, 0, errors)
    return [json.loads(printed.splitlines()[-1]) for printed, _ in said]  # Gloo prints before

  @parameterized.named_parameters(
      ("rows_are_cut", 1, 1, [range(4), range(4, 8)], [[0], [0]]),
      ("the_table_is_cut_between_them", 1, 2, [range(8), range(8)], [[0], [8]]))
  def test_two_make_the_updates_of_one(self, devices, vocab_shards, columns, parts):
    config = mesh_test.run_config(dtype="float32", tie_embeddings=True, num_layers=1)
    start, update_one = mesh_test.starting(config)
    windows = Streams(mesh_test.IDS, config.batch_size, config.bptt)
    expected, state = mesh_test.curve(update_one, start(), windows)
    found = self.peers(2, devices, vocab_shards)
    self.assertEqual([peer["first"] for peer in found], [True, False])
    for peer_, own, part in zip(found, columns, parts, strict=True):
      np.testing.assert_allclose(peer_["curve"], expected, rtol=1e-5)
      np.testing.assert_allclose(peer_["carried"], state.state.output, rtol=1e-4, atol=1e-5)
      self.assertEqual(peer_["columns"], list(own))
      length = windows.targets
      self.assertEqual(peer_["read"], list(range(own.start * length, own.stop * length + 1)))
      self.assertEqual(peer_["parts"], part)
      # At one update for all, after the signal.
      self.assertEqual(peer_["stopped"], found[0]["stopped"])
      self.assertEqual(peer_["made"], peer_["stopped"])
      self.assertBetween(peer_["stopped"], mesh_test.UPDATES, peer.MOST - 1)


class RefusalsTest(parameterized.TestCase):

  @parameterized.parameters(
      ("127.0.0.1:1234", 0, 0, "--process_count=0 .*needed: 1 or more"),
      ("127.0.0.1:1234", 2, 2, "--process_index=2 .*needed: 0 to 1"),
      ("127.0.0.1:1234", 2, -1, "--process_index=-1 .*needed: 0 to 1"),
      ("", 2, 0, "--coordinator= is no address; needed: host:port"),
      ("127.0.0.1", 2, 0, "--coordinator=127.0.0.1 is no address"),
      ("127.0.0.1:0", 2, 0, "is no address"), ("127.0.0.1:70000", 2, 1, "is no address"))
  def test_what_makes_no_sense(self, coordinator, count, index, message):
    with self.assertRaisesRegex(InputError, message):
      processes.start(coordinator, count, index)

  def test_one_process_needs_nobody(self):
    processes.start("", count=1, index=0)
    self.assertTrue(processes.is_first())
    self.assertFalse(processes.stop_wanted(3))


class MeetingTest(parameterized.TestCase):

  def test_who_is_missing_is_named(self):
    with self.assertRaisesRegex(InputError, "--process_index 1, 2 within 0 seconds.*count=3"):
      meeting.wait("127.0.0.1", free_port(), count=3, index=0, timeout=0.1)

  def test_a_first_that_is_not_there(self):
    with self.assertRaisesRegex(InputError, "--coordinator=127.0.0.1:.*did not meet within 0 s"):
      meeting.wait("127.0.0.1", free_port(), count=2, index=1, timeout=0.1)

  def test_a_port_that_is_taken(self):
    server = self.enter_context(socket.create_server(("", 0)))
    with self.assertRaisesRegex(InputError, "--coordinator: port .* needed: a free port"):
      meeting.wait("127.0.0.1", server.getsockname()[1], count=2, index=0, timeout=1)

  @parameterized.parameters(
      ([(3, 1), (3, 2)], {0: NONE, 1: NONE, 2: NONE}),
      ([(3, 1), (3, 1)], {0: "--process_index=1 --process_count=3; needed: each index once"}),
      ([(4, 1)], {0: "--process_count=4; needed: .* --process_count=3", 1: "sent this one away"}))
  def test_who_comes(self, others, expected):
    port = free_port()
    everyone = [(3, 0), *others]
    with concurrent.futures.ThreadPoolExecutor(len(everyone)) as pool:
      asked = [(index, pool.submit(meeting.wait, "127.0.0.1", port, count, index, 20))
               for count, index in everyone]
      for index, future in asked:
        error = future.exception()
        self.assertRegex(str(error), expected.get(index, ".*"))

  def test_a_stranger_is_ignored(self):
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
      first = pool.submit(meeting.wait, "127.0.0.1", port, 2, 0, 20)
      self.knock(port, b"GET / HTTP/1.1\r\n")
      second = pool.submit(meeting.wait, "127.0.0.1", port, 2, 1, 20)
      self.assertIsNone(second.exception())
      self.assertIsNone(first.exception())

  def knock(self, port, words):
    for _ in range(100):
      try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
          stranger.sendall(words)
          return
      except OSError:
        time.sleep(0.05)


if __name__ == "__main__":
  absltest.main()
