"""Copies of the catalogue's source in which every function is marked as pure, for static checkers.

Such a checker complains of lines. A complaint belongs to an example when its line lies in the
example's section: from the end of the example before it to its own last line, so that what serves
a function, and stands above it, counts as part of it. `Section.own` are the lines of the function
alone, without functions inside it.
"""

import ast
import inspect
import pathlib
import re
from collections.abc import Callable
from typing import NamedTuple

from experiments.purity import (
    calls,
    catalogue,
    chex_calls,
    impure,
    impure_jax,
    impure_world,
    optax_calls,
    pure,
    pure_jax,
    settings,
)

WRITTEN = (impure, impure_world, impure_jax, pure, pure_jax, settings)
GENERATED = (optax_calls, chex_calls)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Section(NamedTuple):
  """Where an example stands in the text of its module."""

  lines: range
  own: frozenset[int]


def texts() -> dict[str, str]:
  """The catalogue's source by module name, without marks."""
  return {**{module.__name__: inspect.getsource(module) for module in WRITTEN},
          **{module.__name__: calls.module_source(module.IMPORTS, module.CALLS)
             for module in GENERATED}}


def with_decorator(text: str) -> str:
  """The text with `@pure` of mypy-pure right above each `def`, below other decorators."""
  lines = text.splitlines()
  tree = ast.parse(text)
  first_import = next((node.lineno for node in tree.body
                       if isinstance(node, ast.Import | ast.ImportFrom)), None)
  for node in sorted(_functions(tree), key=lambda node: -node.lineno):
    lines.insert(node.lineno - 1, " " * node.col_offset + "@pure")
  if first_import is not None:
    lines.insert(first_import - 1, "from mypy_pure import pure")
  return "\n".join(lines) + "\n"


def with_comment(text: str) -> str:
  """The text with pure-validator's comment at the end of each line with a `def`."""
  lines = text.splitlines()
  for node in _functions(ast.parse(text)):
    lines[node.lineno - 1] += "  # pragma: pure"
  # The checker looks for the comment on the line after as well, which must be there.
  return "\n".join(lines) + "\n\n"


def write(folder: pathlib.Path, mark: Callable[[str], str]) -> dict[str, str]:
  """Writes the marked modules into the folder; returns their texts by path.

  They keep the names that they import each other by, as modules of the same packages.
  """
  written = {}
  for name, text in texts().items():
    path = folder.joinpath(*name.split(".")).with_suffix(".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    for package in path.relative_to(folder).parents[:-1]:
      (folder / package / "__init__.py").touch()
    written[str(path)] = mark(text)
    path.write_text(written[str(path)], encoding="utf-8")
  return written


def sections(module: str, text: str, examples) -> dict[str, Section]:
  """Where each example of this module stands in this text.

  Args:
    module: the module's name.
    text: its source, marked or not.
    examples: those of the catalogue; others than this module's are passed over.
  """
  tree = ast.parse(text)
  nodes = {qualname: (node, statement) for statement in tree.body
           for qualname, node in _qualified(statement)}
  found = {}
  for example in examples:
    written = catalogue.definition(example.function)
    if written.__module__ == module:
      found[example.name] = nodes[written.__qualname__]
  placed = {}
  previous = 0
  for name, (node, statement) in sorted(found.items(), key=lambda item: item[1][1].lineno):
    inside = {line for other in _functions(node) if other is not node
              for line in range(other.lineno, other.end_lineno + 1)}
    own = frozenset(range(node.lineno, node.end_lineno + 1)) - inside
    placed[name] = Section(range(previous + 1, statement.end_lineno + 1), own)
    previous = statement.end_lineno
  return placed


def complaints(output: str, path: str, accusation: str) -> dict[int, str]:
  """The first complaint of each line of this file in a checker's output, `path:line:...: text`.

  Args:
    output: what the checker printed.
    path: the file's, as the checker prints it.
    accusation: a regular expression; lines whose text it is not found in are about other things.
  """
  pattern = re.compile(re.escape(path) + r":(\d+):(?:\d+:)? *(.*)")
  found = {}
  for match in map(pattern.match, output.splitlines()):
    if match and re.search(accusation, match[2]):
      found.setdefault(int(match[1]), match[2])
  return found


def _functions(tree):
  return [node for node in ast.walk(tree) if isinstance(node, _FUNCTIONS)]


def _qualified(node, prefix=""):
  """Every function in the statement with its `__qualname__`."""
  if isinstance(node, _FUNCTIONS):
    yield prefix + node.name, node
    prefix += f"{node.name}.<locals>."
  elif isinstance(node, ast.ClassDef):
    prefix += f"{node.name}."
  for child in ast.iter_child_nodes(node):
    yield from _qualified(child, prefix)
