"""A report of a run as one HTML file: no network, no library; whatever a text holds stays text."""

import importlib.resources
import string

from hklm.report import colours, inside, sections
from hklm.report.escaping import json_data, text
from hklm.report.facts import Facts


def page(facts: Facts) -> str:
  """The page, with its style, script and data in it.

  Args:
    facts: what `facts.collect` found.
  """
  def file(name):
    return importlib.resources.files("hklm.report").joinpath(name).read_text("utf-8")

  values = inside.layer_values(facts.states)
  palette = inside.palette()
  data = {"tokens": sections.token_data(facts.lines), "layers": inside.cell_data(values),
          "palette": palette, "inks": [colours.ink(colour) for colour in palette]}
  about = "".join(f"<dt>{text(name)}</dt><dd>{text(its)}</dd>" for name, its in facts.about.items())
  return string.Template(file("page.html")).substitute(
      title=text(f"hklm: {facts.title}"), style=file("page.css"), script=file("page.js"),
      about=about, unit=text(facts.unit), curves=sections.curves(facts.curves, facts.unit),
      legend=sections.legend(facts.vocab_size),
      text=sections.coloured(facts.lines, facts.vocab_size), words=sections.words(facts.lines),
      cells=inside.cells(values, inside.token_signals(facts.lines)),
      gates=inside.gates(facts.states, facts.cell), samples=sections.samples(facts.samples),
      data=json_data(data))
