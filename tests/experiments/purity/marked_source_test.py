"""Marked copies: every function once, nothing else changed, and each line is somebody's."""

import ast
import pathlib
import tempfile

from absl.testing import absltest, parameterized

from experiments.purity import catalogue, marked_source

EXAMPLES = (*catalogue.IMPURE, *catalogue.PURE)
TEXTS = marked_source.texts()
SAMPLE = '''"""Some functions."""

import functools

state = []


def helper(x):
  state.append(x)


@functools.cache
def outer(x,
          y=0):
  def inner(z):
    return z
  return inner(x + y)


class Thing:
  def method(self):
    return self
'''


def functions(text):
  return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]


class MarkedSourceTest(parameterized.TestCase):

  @parameterized.parameters(*TEXTS)
  def test_decorator_stands_once_above_each_function(self, module):
    text = marked_source.with_decorator(TEXTS[module])
    lines = text.splitlines()
    for node in functions(text):
      decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
      self.assertEqual(decorators.count("pure"), 1, node.name)
      self.assertEqual(lines[node.lineno - 2].strip(), "@pure")
    self.assertEqual([node.name for node in functions(text)],
                     [node.name for node in functions(TEXTS[module])])
    self.assertLessEqual(lines.count("from mypy_pure import pure"), 1)
    unmarked = [line for line in lines if line.strip() not in ("@pure",
                                                               "from mypy_pure import pure")]
    self.assertEqual(unmarked, TEXTS[module].splitlines())

  @parameterized.parameters(*TEXTS)
  def test_comment_stands_once_in_each_functions_first_line(self, module):
    text = marked_source.with_comment(TEXTS[module])
    marked = [number for number, line in enumerate(text.splitlines(), start=1)
              if line.endswith("# pragma: pure")]
    self.assertEqual(marked, sorted(node.lineno for node in functions(text)))
    self.assertEqual(text.count("# pragma: pure"), len(marked))
    self.assertEqual(ast.dump(ast.parse(text)), ast.dump(ast.parse(TEXTS[module])))

  @parameterized.parameters(*TEXTS)
  def test_no_two_functions_share_a_name(self, module):
    names = [node.name for node in functions(TEXTS[module]) if not node.name.startswith("__")]
    self.assertLen(set(names), len(names))

  @parameterized.parameters(marked_source.with_decorator, marked_source.with_comment, str)
  def test_every_example_has_a_section_of_its_own(self, mark):
    placed = {}
    for module, text in TEXTS.items():
      sections = marked_source.sections(module, mark(text), EXAMPLES)
      lines = [line for section in sections.values() for line in section.lines]
      self.assertLen(set(lines), len(lines))
      for section in sections.values():
        self.assertNotEmpty(section.own)
        self.assertContainsSubset(section.own, section.lines)
      placed.update(sections)
    self.assertEqual(set(placed), {example.name for example in EXAMPLES})

  def test_sample(self):
    decorated = marked_source.with_decorator(SAMPLE).splitlines()
    self.assertEqual(decorated[2:4], ["from mypy_pure import pure", "import functools"])
    self.assertEqual(decorated[13:16], ["@functools.cache", "@pure", "def outer(x,"])
    self.assertEqual(decorated[17:19], ["  @pure", "  def inner(z):"])
    commented = marked_source.with_comment(SAMPLE).splitlines()
    self.assertEqual(commented[12], "def outer(x,  # pragma: pure")

  def test_sections_reach_up_to_the_example_before_and_own_lines_leave_out_what_is_inside(self):
    namespace = {"__name__": "sample"}
    exec(SAMPLE, namespace)
    examples = [catalogue.Example("outer", namespace["outer"], tuple, ""),
                catalogue.Example("method", namespace["Thing"]().method, tuple, "")]
    sections = marked_source.sections("sample", SAMPLE, examples)
    self.assertEqual(sections["outer"], (range(1, 18), {13, 14, 17}))
    self.assertEqual(sections["method"], (range(18, 23), {21, 22}))

  def test_written_modules_import_each_other(self):
    folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
    written = marked_source.write(folder, str.upper)
    self.assertLen(written, len(TEXTS))
    for path, text in written.items():
      self.assertEqual(pathlib.Path(path).read_text(encoding="utf-8"), text)
    self.assertTrue((folder / "experiments" / "purity" / "settings.py").exists())
    self.assertTrue((folder / "experiments" / "__init__.py").exists())

  def test_complaints_by_line(self):
    output = ("a/b.py:3: error: Function 'f' is impure because it calls 'print'\n"
              "a/b.py:3: error: Function 'f' is impure because it calls 'open'\n"
              "a/b.py:9:4: Function 'g' is impure because of h\n"
              "a/b.py:12: error: Need type annotation\n"
              "other/a/b.py:5: error: Function 'k' is impure because it calls 'print'\n")
    self.assertEqual(marked_source.complaints(output, "a/b.py", "is impure because"),
                     {3: "error: Function 'f' is impure because it calls 'print'",
                      9: "Function 'g' is impure because of h"})


if __name__ == "__main__":
  absltest.main()
