"""Public functions of the report that are pure, each with a call."""

from collections.abc import Callable

import numpy as np

from hklm.report import charts, colours, escaping, inside, sections, units
from tests.purity.library_makers import Call, call, listed
from tests.report import made


def shown_values():
  return inside.layer_values(made.facts().states)


PURE: dict[str, Callable[[], Call]] = {
    "report.charts.chart": lambda: call(
        charts.chart, "title", "x", "y", [charts.Series("a", [(0, 1), (2, 3)], marks=True)]),
    "report.charts.ticks": lambda: call(charts.ticks, 1.9, 4.2),
    "report.colours.amount": lambda: call(colours.amount, 0.3),
    "report.colours.ink": lambda: call(colours.ink, (255, 226, 150)),
    "report.colours.luminance": lambda: call(colours.luminance, (255, 226, 150)),
    "report.colours.name": lambda: call(colours.name, (255, 226, 150)),
    "report.colours.signed": lambda: call(colours.signed, -0.3),
    "report.escaping.json_data": lambda: call(escaping.json_data, {"a": "</script>"}),
    "report.escaping.text": lambda: call(escaping.text, "</style>\0"),
    "report.inside.cell_data": lambda: call(inside.cell_data, shown_values()),
    "report.inside.cells": lambda: call(
        inside.cells, shown_values(), inside.token_signals(made.facts().lines)),
    "report.inside.gates": lambda: call(inside.gates, made.facts().states, "lstm"),
    "report.inside.layer_values": lambda: call(inside.layer_values, made.facts().states),
    "report.inside.palette": lambda: call(inside.palette),
    "report.inside.token_signals": lambda: call(inside.token_signals, made.facts().lines),
    "report.sections.coloured": lambda: call(sections.coloured, made.facts().lines, made.V),
    "report.sections.curves": lambda: call(sections.curves, made.facts().curves, "word"),
    "report.sections.legend": lambda: call(sections.legend, made.V),
    "report.sections.losses": lambda: call(
        sections.losses, made.facts().curves, "valid_nats_per_token"),
    "report.sections.samples": lambda: call(sections.samples, {0.5: "cold"}),
    "report.sections.spelled": lambda: call(listed(sections.spelled), made.line("a b")),
    "report.sections.token_data": lambda: call(sections.token_data, made.facts().lines),
    "report.sections.top": lambda: call(sections.top, made.V),
    "report.sections.words": lambda: call(sections.words, made.facts().lines),
    "report.units.correlations": lambda: call(
        units.correlations, np.arange(6.0).reshape(3, 2), np.array([0.0, 1.0, 1.0])),
    "report.units.saturation": lambda: call(units.saturation, np.array([[0.0, 0.95]])),
    "report.units.signals": lambda: call(units.signals, 'a "b"'),
    "report.units.strongest": lambda: call(units.strongest, np.array([0.1, -0.9]), 1),
    "report.units.true_gates": lambda: call(units.true_gates, {"i": np.array([[0.2]])}),
}
