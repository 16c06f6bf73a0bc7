"""The page: what is in it, and that nothing of a text is read as anything but text."""

import base64
import json
import re
from unittest import mock

import numpy as np
from absl.testing import absltest, parameterized

from hklm.report import charts, colours, escaping, inside, sections
from hklm.report import html as html_
from tests.report import made
from tests.report.parsed import Page


def page(**changes):
  return Page(html_.page(made.facts(**changes)))


def tokens(its):
  return its.all("span", role="option")


class PageTest(parameterized.TestCase):

  def test_it_needs_nothing_from_elsewhere(self):
    its = page()
    policy, _ = its.one("meta", **{"http-equiv": "Content-Security-Policy"})
    self.assertEqual(policy["content"], "default-src 'none'; style-src 'unsafe-inline'; "
                                        "script-src 'unsafe-inline'; img-src data:")
    for _, attrs, _ in its.elements:
      self.assertNoCommonElements(attrs, ("src", "srcset", "action", "data"))
      self.assertStartsWith(attrs.get("href", "#"), "#")
    self.assertNotIn("http:", html_.page(made.facts()).replace("http-equiv", ""))
    self.assertEmpty(its.all("link"))

  def test_every_token_is_there_with_its_bits_and_colour(self):
    facts = made.facts()
    its = tokens(page())
    self.assertLen(its, sum(len(line.surprisals) for line in facts.lines))
    bits = np.concatenate([line.surprisals for line in facts.lines])
    self.assertEqual("".join(text for _, text in its).replace("⏎", ""),
                     "".join(line.text + "\n" for line in facts.lines))
    for n, (attrs, _) in enumerate(its):
      self.assertEndsWith(attrs["aria-label"], f": {bits[n]:.2f} bits")
      colour = colours.name(colours.amount(bits[n] / 4))  # log2 16
      self.assertStartsWith(attrs["style"], f"background:{colour};")
      self.assertEqual(attrs["tabindex"], "-1" if n else "0")

  def test_the_legend_has_units_and_ends_at_log2_v(self):
    _, said = page().one("div", id="legend")
    self.assertStartsWith(said, "surprisal in bits0.01.02.03.04.0+")

  def test_curves_are_in_bits_per_unit(self):
    its = page()
    (svg, said), = [found for found in its.all("svg") if "Losses" in found[1]]
    self.assertIn("bits per character", said)
    self.assertIn("update", said)
    self.assertEqual(svg["role"], "img")
    _, section = its.one("section", id="curves")
    self.assertIn("Lowest validation: 1.2500 bits per character, after update 4.", section)
    self.assertEqual(sections.losses(made.facts().curves, "train_nats_per_token"),
                     [(1, 4), (2, 2), (3, 4 / 3), (4, 1)])

  def test_without_losses_it_says_so(self):
    _, section = page(curves=[]).one("section", id="curves")
    self.assertIn("no losses", section)

  def test_the_most_surprising_words_come_first(self):
    _, said = page().one("section", id="words")
    facts = made.facts()
    words = sorted(((word.surprisal_bits, word.text) for line in facts.lines
                    for word in line.by_word() if word.text != "\\n"), reverse=True)
    cells = [text for attrs, text in page().all("td", **{"class": "word"})]
    self.assertEqual(cells, [text for _, text in words])
    self.assertIn(f"{words[0][0]:.2f}", said)

  def test_samples_with_temperatures(self):
    _, said = page().one("section", id="samples")
    self.assertIn("temperature 0.5cold", said)
    self.assertIn("temperature 1warm", said)
    self.assertLess(said.index("cold"), said.index("warm"))

  def test_the_search_names_the_planted_unit_first(self):
    buttons = [attrs for attrs, _ in page().all("button")]
    self.assertEqual((buttons[0]["data-layer"], buttons[0]["data-unit"]), ("1", str(made.QUOTES)))

  def test_a_signal_that_the_text_has_not(self):
    its = page(**made.facts(["plain words"])._asdict())
    _, said = its.one("table", **{"data-signal": "brackets"})
    self.assertIn("the text has none", said)

  def test_shares_of_the_gates(self):
    _, said = page().one("table", id="saturation")
    gate = made.facts().states.layers[0].gates["i"]
    self.assertIn(f"0i0.0 %{100 * (gate > 0.9).mean():.1f} %", said)
    self.assertIn(f"1o{100 * (gate > 0.9).mean():.1f} %0.0 %", said)
    drawn = []
    with mock.patch.object(charts, "chart", lambda *args: drawn.append(args) or ""):
      inside.gates(made.facts().states, "lstm")
    _, x_label, y_label, series, _ = drawn[0]
    self.assertIn("open", x_label)
    self.assertIn("shut", y_label)
    points = {its.name: its.points for its in series}
    np.testing.assert_allclose(points["i"], [(share, 0) for share in (gate > 0.9).mean(axis=0)])
    np.testing.assert_allclose(points["o"], [(0, share) for share in (gate > 0.9).mean(axis=0)])

  def test_a_cell_without_gates(self):
    facts = made.facts(cell="mine:cell")
    layers = tuple(layer._replace(gates={}) for layer in facts.states.layers)
    its = page(cell="mine:cell", states=facts.states._replace(layers=layers))
    _, said = its.one("section", id="gates")
    self.assertIn("The cell mine:cell tells no gates", said)
    self.assertIn("output, ", its.one("section", id="cells")[1])

  def test_values_of_the_cells_come_back_to_half_a_step(self):
    values = inside.layer_values(made.facts().states)
    for layer, its in zip(values, inside.cell_data(values), strict=True):
      read = np.frombuffer(base64.b64decode(its["values"]), np.int8).reshape(-1, its["units"])
      np.testing.assert_allclose(read / 127 * its["limit"], layer.values, atol=its["limit"] / 254)

  def test_it_holds_at_most_so_many_tokens_of_cells(self):
    long = inside.Values("output", np.ones([inside.CELL_TOKENS + 5, 2]))
    (its,) = inside.cell_data([long])
    self.assertLen(base64.b64decode(its["values"]), 2 * inside.CELL_TOKENS)


class EscapedTest(parameterized.TestCase):

  def hostile(self):
    facts = made.facts([made.HOSTILE, "$title ${x} {{y}}"])
    return facts._replace(
        title=made.HOSTILE, about={made.HOSTILE: made.HOSTILE}, samples={1.0: made.HOSTILE},
        cell=made.HOSTILE, unit=made.HOSTILE)

  def test_there_are_no_more_elements_than_with_a_harmless_text(self):
    harmless = "".join("x" if c in "<>&\"'" else c for c in made.HOSTILE)
    quiet = made.facts([harmless, "$title ${x} {{y}}"])._replace(about={"a": "b"},
                                                                 samples={1.0: "c"})
    tags = [[tag for tag, *_ in Page(html_.page(facts)).elements
             if tag not in ("td", "tr", "button", "line", "text")]  # as many as are found
            for facts in (self.hostile(), quiet)]
    self.assertEqual(*tags)

  def test_what_is_shown_is_the_text(self):
    shown = [text for _, text in tokens(Page(html_.page(self.hostile())))]
    self.assertEqual("".join(shown).split("⏎\n")[:2],
                     [made.HOSTILE.replace("\0", r"\x00").replace("\x07", r"\x07")
                      .replace("\u2028", r"\u2028").replace("\u2029", r"\u2029"),
                      "$title ${x} {{y}}"])

  def test_no_control_character_is_left(self):
    its = html_.page(self.hostile())
    self.assertEmpty(re.findall("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", its))

  def test_data_for_the_script_come_back(self):
    _, raw = Page(html_.page(self.hostile())).one("script", type="application/json")
    self.assertEmpty(re.findall("[<>&\u2028\u2029]", raw))
    read = json.loads(raw)["tokens"]["symbol"]
    self.assertEqual("".join(read[:len(made.HOSTILE)]), made.HOSTILE)

  @parameterized.parameters("\ud800", "\r", "\x85", "\ufeff", "\x1b")
  def test_half_pairs_and_controls_are_spelled_out(self, character):
    found = escaping.text(character)
    self.assertEqual(found, repr(character)[1:-1])
    found.encode("utf-8")

  def test_numbers_that_are_not_finite_are_refused(self):
    with self.assertRaises(ValueError):
      escaping.json_data([float("nan")])


class SpelledTest(absltest.TestCase):

  def test_words_with_gaps_and_bytes_of_a_character(self):
    line = made.line("a  é b")._replace(
        symbols=["a", r"\xc3", r"\xa9", "<unk>"], starts=np.array([0, 3, 3, 5]),
        ends=np.array([1, 4, 4, 6]), surprisals=np.ones(4), ended=False)
    self.assertEqual(list(sections.spelled(line)),
                     [(0, "a", ""), (1, "é", "  "), (2, r"\xa9", ""), (3, "b", " ")])


class ChartsTest(parameterized.TestCase):

  @parameterized.parameters((0, 1), (-3, 17), (2.2, 2.3), (0, 123456), (1e-6, 2e-6))
  def test_ticks_are_within_and_evenly_apart(self, low, high):
    ticks = charts.ticks(low, high)
    self.assertBetween(len(ticks), 2, 7)
    self.assertGreaterEqual(min(ticks), low - 1e-9 * (high - low))
    self.assertLessEqual(max(ticks), high + 1e-9 * (high - low))
    np.testing.assert_allclose(np.diff(ticks), ticks[1] - ticks[0])

  def test_points_lie_where_the_axes_say(self):
    svg = charts.chart("t", "x", "y", [charts.Series("a", [(0, 0), (10, 5), (5, 2.5)])],
                       (0, 10, 0, 5))
    (points,) = re.findall('points="([^"]*)"', svg)
    (x0, y0), (x1, y1), middle = (tuple(map(float, p.split(","))) for p in points.split())
    self.assertEqual(middle, ((x0 + x1) / 2, (y0 + y1) / 2))
    self.assertLess(x0, x1)
    self.assertGreater(y0, y1)  # upwards

  def test_one_point_and_none(self):
    one = charts.chart("t", "x", "y", [charts.Series("a", [(3, 3)])])
    self.assertIn('points="344.0,134.0"', one)  # in the middle of the axes: 64 to 624, 16 to 252
    self.assertIn('<circle cx="344.0" cy="134.0"', one)  # a line of one point is not to be seen
    none = charts.chart("t", "x", "y", [])
    self.assertNotIn("points=", none)
    self.assertNotIn("nan", none)


if __name__ == "__main__":
  absltest.main()
