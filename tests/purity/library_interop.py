"""Public functions of hklm.interop that are pure, each with a call."""

from collections.abc import Callable

import numpy as np

from hklm.interop import checked, layouts, torch, vocabulary
from tests.interop import sources
from tests.purity.library_makers import Call, call, refused

LAYER = {"weight_ih": "rnn.weight_ih_l0", "weight_hh": "rnn.weight_hh_l0"}
TABLES = ("encoder.weight", "decoder.weight", "decoder.bias")


def exported() -> Call:
  its = torch.import_state_dict(sources.lstm())
  return call(torch.export_state_dict, its.config, its.params)


PURE: dict[str, Callable[[], Call]] = {
    "interop.checked.array": lambda: call(checked.array, "a", [1.0, 2.0]),
    "interop.checked.check_finite": lambda: call(
        refused(checked.check_finite), "a", np.array([1.0, np.inf])),
    "interop.checked.numbers": lambda: call(checked.numbers, sources.lstm()),
    "interop.checked.stack": lambda: call(checked.stack, sources.lstm(), [LAYER]),
    "interop.layouts.listed": lambda: call(layouts.listed, sources.lstm()),
    "interop.layouts.recurrent": lambda: call(layouts.recurrent, sources.lstm()),
    "interop.layouts.same_bits": lambda: call(layouts.same_bits, np.ones(2), np.ones(2)),
    "interop.layouts.spelled": lambda: call(layouts.spelled, np.ones([2, 3])),
    "interop.layouts.tables": lambda: call(
        layouts.tables, {name: sources.lstm()[name] for name in TABLES}, sources.E, sources.H),
    "interop.layouts.transposed": lambda: call(layouts.transposed, np.ones([2, 3])),
    "interop.torch.export_state_dict": exported,
    "interop.torch.import_state_dict": lambda: call(
        torch.import_state_dict, sources.lstm(), "igfo", 1.0),
    "interop.vocabulary.tokenizer": lambda: call(
        vocabulary.tokenizer, ("the", "<eos>", "<unk>"), 3),
}
