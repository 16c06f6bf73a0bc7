"""TensorBoard events: the scalars of a run over its updates."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping


@contextlib.contextmanager
def writer(folder: str, done: int) -> Iterator[Callable[[int, Mapping], None]]:
  """Opens one more file of events, and closes it.

  No `SummaryWriter`: its thread dies of a full disk, and then its queue waits for ever. Here every
  write is on its way to the disk when it returns, or raises.

  Args:
    folder: where the files are; made if it is not there.
    done: updates made; what older files say of later ones is hidden from now on.

  Yields:
    `write(update, scalars by name)`; a scalar that is None is left out.

  Raises:
    ImportError: tensorboardX (extra `plots`) is not installed.

  >>> import tempfile
  >>> with tempfile.TemporaryDirectory() as folder:
  ...   with writer(folder, 0) as write:
  ...     write(20, {"train_nats_per_token": 2.5})
  ...   len(os.listdir(folder))
  1
  """
  from tensorboardX.event_file_writer import EventsWriter
  from tensorboardX.proto.event_pb2 import Event, SessionLog
  from tensorboardX.proto.summary_pb2 import Summary

  os.makedirs(folder, exist_ok=True)
  # Names are of whole seconds; those of one second are read in the order of the updates.
  file = EventsWriter(os.path.join(folder, "events"), f".{done:012}")

  def put(step, **event):
    file.write_event(Event(wall_time=time.time(), step=step, **event))
    file.flush()

  def write(step, scalars):
    put(step, summary=Summary(value=[Summary.Value(tag=name, simple_value=value)
                                     for name, value in scalars.items() if value is not None]))

  try:
    put(done + 1, session_log=SessionLog(status=SessionLog.START))
    yield write
  finally:
    with contextlib.suppress(OSError):  # what could not be written has been raised before
      file.close()
