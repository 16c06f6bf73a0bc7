"""The page in a real browser: nothing runs but its own script, and everything can be reached."""

import contextlib
import functools
import json
import os
import tempfile
import unittest

import numpy as np
from absl.testing import absltest

from hklm.report import colours, html
from tests.report import browser, made

TEXTS = ('He said "so be it" and left', 'and "no" (once).', "", "  the end")


@unittest.skipIf(browser.missing(), browser.missing())
class BrowserTest(absltest.TestCase):

  @classmethod
  def setUpClass(cls):
    super().setUpClass()
    with contextlib.ExitStack() as stack:
      cls.folder = stack.enter_context(tempfile.TemporaryDirectory())
      cls.driver = stack.enter_context(browser.opened())
      cls.addClassCleanup(stack.pop_all().close)

  @functools.cached_property
  def js(self):
    return self.driver.execute_script

  def open(self, facts):
    """Shows a page, and forgets what the browser did before it."""
    path = os.path.join(self.folder, "report.html")
    with open(path, "w", encoding="utf-8") as file:
      file.write(html.page(facts))
    for log in ("browser", "performance"):
      self.driver.get_log(log)
    self.driver.get(f"file://{path}")

  def press(self, *keys):
    from selenium.webdriver import ActionChains

    ActionChains(self.driver).send_keys(*keys).perform()

  def point(self, selector, x=0, y=0):
    """Moves the mouse to an element's middle, or so far from it; returns what does the moving."""
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.by import By

    element = self.driver.find_element(By.CSS_SELECTOR, selector)
    self.js("arguments[0].scrollIntoView({block: 'center'})", element)
    moved = ActionChains(self.driver).move_to_element_with_offset(element, x, y)
    moved.perform()
    return moved

  def text(self, selector):
    return self.js("return document.querySelector(arguments[0]).textContent", selector)

  def details(self, panel="text-details"):
    """What the panel says, by name."""
    return dict(self.js("return [...document.querySelectorAll(arguments[0])].map("
                        "(row) => [row.firstChild.textContent, row.lastChild.textContent])",
                        f"#{panel} dl div"))

  def focused(self):
    """Number of the token that has the keyboard."""
    return int(self.js("return document.activeElement.dataset.n"))

  def test_no_errors_and_no_requests(self):
    self.open(made.facts(TEXTS))
    self.press("\ue004")  # Tab
    self.assertEqual(self.driver.get_log("browser"), [])
    events = [json.loads(entry["message"])["message"]
              for entry in self.driver.get_log("performance")]
    urls = [event["params"]["request"]["url"] for event in events
            if event["method"] == "Network.requestWillBeSent"]
    self.assertLen(urls, 1)
    self.assertStartsWith(urls[0], "file:///")

  def test_a_text_does_not_run(self):
    facts = made.facts([made.HOSTILE, "x"])
    self.open(facts._replace(title=made.HOSTILE, about={made.HOSTILE: made.HOSTILE},
                             samples={1.0: made.HOSTILE}, cell=made.HOSTILE))
    self.assertEqual(self.driver.get_log("browser"), [])
    for n in range(len(made.HOSTILE)):  # what is shown of each token is no more dangerous
      self.js("document.querySelectorAll('#text span[role]')[arguments[0]].focus()", n)
      self.assertEqual(self.details()["token"], made.HOSTILE[n])
    self.assertTrue(self.js("return window.flag === undefined"))
    self.assertEqual(self.js("return document.images.length"), 0)
    self.assertEqual(self.js("return document.scripts.length"), 2)

  def test_the_policy_forbids_the_network(self):
    self.open(made.facts(TEXTS))
    self.js("const i = new Image(); i.src = 'http://127.0.0.1:9/x.png'; document.body.append(i)")
    said = ""
    for _ in range(50):
      said += "".join(entry["message"] for entry in self.driver.get_log("browser"))
      if "Content Security Policy" in said:
        break
      self.js("return 0")
    self.assertIn("Content Security Policy", said)

  def test_pointing_shows_details_with_units(self):
    self.open(made.facts(TEXTS))
    self.point('#text span[data-n="6"]')
    line = made.line(TEXTS[0])
    found = self.details()
    self.assertEqual(found["token"], TEXTS[0][6])
    self.assertEqual(found["surprisal"], "1.50 bits")
    self.assertEqual(found["entropy"], f"{line.entropies[6]:.2f} bits")
    self.assertEqual(found["entropy reduction"],
                     f"{line.entropies[6] - line.entropies[7]:.2f} bits")
    self.assertEqual(found["rank"], "7")
    self.assertEqual(found["word"], f"said ({sum(n / 4 for n in range(2, 7)):.2f} bits)")
    self.assertEqual((found["line"], found["index"]), ("0", "6"))

  def test_the_keyboard_reaches_every_token(self):
    self.open(made.facts(TEXTS))
    right, left, up, down, home, end = "\ue014\ue012\ue013\ue015\ue011\ue010"
    self.js("document.querySelector('nav a:last-child').focus()")
    self.press("\ue004")  # Tab: one stop for the whole text
    self.assertEqual(self.focused(), 0)
    self.assertEqual(self.details()["surprisal"], "0.00 bits")
    self.press(right, right, right, left)
    self.assertEqual(self.focused(), 2)
    self.assertEqual(self.details()["surprisal"], "0.50 bits")
    self.press(down)
    first = len(TEXTS[0]) + 1
    self.assertEqual(self.focused(), first)
    self.press(down, down)
    self.assertEqual(self.focused(), first + len(TEXTS[1]) + 2)
    self.press(up, up, up, home, left)
    self.assertEqual(self.focused(), 0)
    self.press(end, right)
    self.assertEqual(self.focused(), sum(len(text) + 1 for text in TEXTS) - 1)
    self.assertEqual(self.details()["token"], "\\n")
    self.press("\ue004")  # and out again
    self.assertNotEqual(self.js("return document.activeElement.closest('.text')?.id"), "text")
    stops = "return document.querySelectorAll('#text [tabindex=\"0\"]').length"
    self.assertEqual(self.js(stops), 1)

  def test_tokens_are_named_for_who_cannot_see_them(self):
    self.open(made.facts(TEXTS))
    from selenium.webdriver.common.by import By

    token = self.driver.find_element(By.CSS_SELECTOR, '#text span[data-n="3"]')
    self.assertEqual(token.accessible_name, "s: 0.75 bits")
    self.assertEqual(token.aria_role, "option")
    self.assertEqual(self.js("return document.getElementById('text-details').ariaLive"), "polite")

  def test_legends_are_seen_with_their_units(self):
    self.open(made.facts(TEXTS))
    for selector, part in (("#legend", "surprisal in bits"), ("#cell-legend", "tanh of the cell")):
      self.assertIn(part, self.text(selector))
      size = self.js("const box = document.querySelector(arguments[0]).getBoundingClientRect();"
                     "return [box.width, box.height]", f"{selector} .bar")
      self.assertGreater(size[0], 200)
      self.assertGreater(size[1], 10)

  def test_the_search_finds_the_planted_unit_and_shows_it(self):
    facts = made.facts(TEXTS)
    self.open(facts)
    self.point('table[data-signal="quotes"] tbody tr:first-child button').click().perform()
    self.assertEqual(self.text("#chosen"), f"layer 1, unit {made.QUOTES} of {made.H}")
    shown = self.js("return [...document.querySelectorAll('#cell-text span[role]')].map("
                    "(span) => getComputedStyle(span).backgroundColor)")
    within = [c for text in TEXTS for c in made.within(text + "\n")]
    self.assertLen(shown, len(within))
    for colour, quoted in zip(shown, within, strict=True):
      red, _, blue = map(int, colour.removeprefix("rgb(").removesuffix(")").split(","))
      self.assertEqual(red > blue, bool(quoted), colour)  # orange within quotes, blue outside

  def test_choosing_a_unit_by_its_number(self):
    facts = made.facts(TEXTS)
    self.open(facts)
    self.js("document.getElementById('layer').value = '0';"
            "document.getElementById('layer').dispatchEvent(new Event('change'))")
    self.js("const unit = document.getElementById('unit'); unit.value = '2';"
            "unit.dispatchEvent(new Event('input')); unit.focus()")
    self.js("document.querySelector('#cell-text span[data-n=\"5\"]').focus()")
    found = self.details("cell-details")
    self.assertEqual((found["layer"], found["unit"]), ("0", "2"))

    value = np.tanh(facts.states.layers[0].cells["cell"][5, 2])
    self.assertAlmostEqual(float(found["tanh of the cell"]), value, delta=0.01)

  def test_the_map_by_mouse_and_keyboard(self):
    facts = made.facts(TEXTS)
    self.open(facts)
    self.js("document.querySelector('.map[data-layer=\"1\"] canvas').focus()")
    right, down = "\ue014\ue015"
    self.press(right, right, right, right, down, down)
    found = self.details("cell-details")
    self.assertEqual((found["layer"], found["unit"], found["index"]), ("1", "2", "4"))
    self.press("\ue007")  # Enter
    self.assertEqual(self.text("#chosen"), f"layer 1, unit 2 of {made.H}")
    self.point('.map[data-layer="0"] canvas').click().perform()
    self.assertEqual(self.text("#chosen"), f"layer 0, unit {made.H // 2} of {made.H}")

  def test_the_map_has_the_colours_of_the_values(self):

    facts = made.facts(TEXTS)
    self.open(facts)
    pixels = self.js("""
      const canvas = document.querySelector('.map[data-layer="1"] canvas');
      return [canvas.width, canvas.height,
              [...canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data]]""")
    values = np.tanh(facts.states.layers[1].cells["cell"])  # [N, H]
    self.assertEqual(pixels[:2], [len(values), made.H])
    drawn = np.array(pixels[2]).reshape(made.H, len(values), 4)[..., :3]
    expected = np.array([[colours.signed(v) for v in row] for row in values.T])
    self.assertLess(np.abs(drawn - expected).max(), 4)

  def test_nothing_is_wider_than_the_page(self):
    self.open(made.facts([("word " * 60).strip(), "x" * 300]))
    for width in (1100, 420):
      self.driver.set_window_size(width, 900)
      self.assertLessEqual(self.js("return document.documentElement.scrollWidth"),
                           self.js("return document.documentElement.clientWidth"))


if __name__ == "__main__":
  absltest.main()
