"""The flags by which a model adapts to the text that it reads, and what they make of a run."""

from typing import NamedTuple

from absl import flags as absl_flags

from experiments import cli, flags
from hklm.data import encoding
from hklm.data.streams import Streams
from hklm.errors import InputError
from hklm.inference import adaptive, dynamic, streams, temperature
from hklm.inference.cache import CacheSettings
from hklm.inference.dynamic import DynamicSettings
from hklm.model import LanguageModel
from hklm.run import Run

FLAGS = flags.FLAGS

absl_flags.DEFINE_integer("cache_size", 0, "Positions of a neural cache; 0: none.")
absl_flags.DEFINE_float("cache_weight", 0.1, "The cache's share of the probability, lambda.")
absl_flags.DEFINE_float("cache_flatness", 1.0, "How much the cache prefers positions that resemble "
                        "the present one, theta.")
absl_flags.DEFINE_float("dynamic_rate", 0.0, "Rate of dynamic evaluation, eta; 0: none.")
absl_flags.DEFINE_float("dynamic_decay", 0.02, "How far its parameters go back to the run's, "
                        "lambda.")
absl_flags.DEFINE_integer("dynamic_segment", 5, "Tokens that it scores before it learns from them.")
absl_flags.DEFINE_float("dynamic_epsilon", 1e-3, "Its epsilon.")
absl_flags.DEFINE_multi_string("dynamic_corpus", [], "As --corpus: the training text whose "
                               "gradients it goes by.")
absl_flags.DEFINE_multi_string("temperature_from", [], "As --corpus: the validation text on which "
                               "the softmax's temperature is tuned.")

NAMES = ("cache_size", "cache_weight", "cache_flatness", "dynamic_rate", "dynamic_decay",
         "dynamic_segment", "dynamic_epsilon", "dynamic_corpus", "temperature_from")


class Adapting(NamedTuple):
  """A run as the flags want it.

  Attributes:
    lm: its model, at the tuned temperature if one was asked for.
    reader: how a text is read; None where the flags want nothing that goes along with it.
    names: of what is on, with the settings; none: the run as it is.
  """

  lm: LanguageModel
  reader: streams.Reader | None
  names: tuple[str, ...]


def adapting(run: Run, as_text: bool, needed: str, window: int = streams.WINDOW) -> Adapting:
  """What the flags say.

  Args:
    run: what `load_run` returned.
    as_text: whether one text is read from end to end.
    needed: the flag that makes it so, for the message.
    window: tokens per compiled call.
  """
  _check(as_text, needed)
  lm, names, settings = run.lm, [], {}
  if FLAGS.temperature_from:
    found = temperature.tune_temperature(lm, run.params, _ids(run, "temperature_from"))
    cli.note(f"temperature: {found:.6g}")
    lm = temperature.tempered(lm, found)
    names.append(f"temperature({found:.6g})")
  if FLAGS.dynamic_rate:
    its = DynamicSettings(FLAGS.dynamic_rate, FLAGS.dynamic_decay, FLAGS.dynamic_segment,
                          FLAGS.dynamic_epsilon)
    dynamic.check_dynamic(its)
    settings |= {"dynamic": its, "sizes": _gradient_sizes(run, lm, its.segment)}
    names.append(f"dynamic({its.rate:g},{its.decay:g},{its.segment},{its.epsilon:g})")
  if FLAGS.cache_size:
    its = CacheSettings(FLAGS.cache_size, FLAGS.cache_weight, FLAGS.cache_flatness)
    settings["cache"] = its
    names.append(f"cache({its.size},{its.weight:g},{its.flatness:g})")
  reader = adaptive.reader(lm, window=window, **settings) if settings else None
  return Adapting(lm, reader, tuple(names))


def _check(as_text, needed):
  """Refuses what would change nothing, or what has no order in which to adapt."""
  for switch in ("cache_size", "dynamic_rate"):
    if FLAGS[switch].value and not as_text:
      raise InputError(f"--{switch} adapts to a text from its first token to its last; needed: "
                       f"{needed}")
  for switch, others in (("cache_size", NAMES[1:3]), ("dynamic_rate", NAMES[4:8])):
    given = [name for name in others if FLAGS[name].present]
    if given and not FLAGS[switch].value:
      raise InputError(f"--{given[0]} changes nothing without --{switch}; needed: both or neither")
  if FLAGS.dynamic_rate and not FLAGS.dynamic_corpus:
    raise InputError("--dynamic_rate goes by gradients of training text; needed: --dynamic_corpus")


def _gradient_sizes(run, lm, segment):
  ids = _ids(run, "dynamic_corpus")
  if len(ids) <= segment:
    raise InputError(f"--dynamic_corpus has {len(ids)} tokens; needed: more than "
                     f"--dynamic_segment={segment}")
  columns = min(dynamic.BATCH_SIZE, (len(ids) - 1) // segment)
  windows = Streams(ids, columns, segment)
  whole = windows.targets // segment  # a shorter one at the end would be compiled for itself
  return dynamic.gradient_sizes(lm, run.params, (windows[n] for n in range(whole)))


def _ids(run, name):
  """The tokens of the text that a flag names."""
  return encoding.encode_corpus(run.tokenizer, flags.corpus(name)).ids
