"""One judge for each checker of purity: examples -> what it says of each.

Each checker is used as its own documentation says. Doubts are decided in its favour: an impure
function counts as found by any complaint about it or about what serves it; a pure one as accused by
a complaint about itself alone. A failure that is not the checker's verdict is no accusation.

  python -m experiments.purity.judges NAME    # prints a JSON object: name -> [verdict, reason]
"""

import inspect
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import types

import jax

from experiments.purity import apart, catalogue, marked_source
from experiments.purity.apart import IMPURE, PURE, Judgement

CALLS = 4  # of a decorated function: one of the examples differs from its third call on

# What the decorators say when they object, also where JAX wraps it in an error of its own.
_OBJECTIONS = {
    "enforce_deterministic": "Non-deterministic output detected",
    "forbid_globals": "Global names referenced|^name '.*' is not defined",
    "forbid_side_effects": "Side effect blocked",
    "immutable_arguments": "Argument mutated",
}


def hklm_purity(example) -> Judgement:
  from hklm import purity
  report = purity.check(example.function, *example.arguments())
  return Judgement(report.verdict, "; ".join(map(str, (*report.findings, *report.unchecked))))


def checking_leaks(example) -> Judgement:
  """The function is compiled and run with JAX's own check for leaked tracers."""
  try:
    with jax.checking_leaks():
      jax.jit(example.function)(*example.arguments())
  except Exception as error:
    leaked = "Leaked" in str(error)
    return Judgement(IMPURE, str(error)[:200]) if leaked else apart.not_applied(error)
  return Judgement(PURE)


def decorated(decorator: str, compiled_before: bool = False):
  """A judge that calls the decorated function several times, with new arguments each time.

  Args:
    decorator: its name.
    compiled_before: whether the function is called once before it is decorated. Else JAX compiles
      inside the decorated call, and its reading of the clock is taken for the function's.
  """
  def judge(example):
    import pure_function_decorators
    decorate = getattr(pure_function_decorators, decorator)
    function, first = _function_and_owner(example.function)
    try:
      if compiled_before:
        function(*first, *example.arguments())
      if decorator == "forbid_globals":
        # It is put on the `def` itself: what stands above it, as jit, has no globals. Modules,
        # classes and functions are allowed, as its documentation does, so imports are as well.
        function = inspect.unwrap(function)
        judged = decorate(function, allow=_legitimate_globals(function), check_names=True,
                          include_imports=False)
      else:
        judged = decorate(function)
      for _ in range(CALLS):
        judged(*first, *example.arguments())
    except Exception as error:
      found = re.search(_OBJECTIONS[decorator] + ".*", str(error))
      return Judgement(IMPURE, found[0][:200]) if found else apart.not_applied(error)
    return Judgement(PURE)
  return judge


def mypy_pure(examples) -> dict[str, Judgement]:
  """mypy with the plugin, on copies in which each function has the decorator.

  The plugin looks at the copies alone. So mypy need not read JAX: with `follow_imports = normal`
  it says the same and takes four times as long.
  """
  def output(folder, paths):
    config = folder / "mypy.ini"
    config.write_text("[mypy]\nplugins = mypy_pure.plugin\nignore_missing_imports = True\n"
                      "follow_imports = skip\n", encoding="utf-8")
    return _printed(["mypy", "--config-file", str(config), "--cache-dir=/dev/null", *paths], folder)
  return _static(examples, marked_source.with_decorator, output, r"is impure because|calls impure")


def pure_validator(examples) -> dict[str, Judgement]:
  """Its command line, on copies in which each function has the comment."""
  def output(folder, paths):
    return _printed(["pure_validator", *paths], folder)
  return _static(examples, marked_source.with_comment, output, "^Function ")


def _apart(judge):
  return lambda examples: {example.name: apart.judge_apart(judge, example) for example in examples}


JUDGES = {
    "hklm.purity": _apart(hklm_purity),
    "mypy-pure": mypy_pure,
    "pure-validator": pure_validator,
    **{name: _apart(decorated(name)) for name in _OBJECTIONS},
    "forbid_side_effects, compiled before": _apart(decorated("forbid_side_effects", True)),
    "jax.checking_leaks": _apart(checking_leaks),
}


def _static(examples, mark, output, accusation) -> dict[str, Judgement]:
  impure_names = {example.name for example in catalogue.IMPURE}
  judgements = {}
  with tempfile.TemporaryDirectory() as temporary:
    folder = pathlib.Path(temporary).resolve()
    written = marked_source.write(folder, mark)
    printed = output(folder, [str(pathlib.Path(path).relative_to(folder)) for path in written])
    for path, text in written.items():
      relative = pathlib.Path(path).relative_to(folder)
      module = ".".join(relative.with_suffix("").parts)
      complaints = marked_source.complaints(printed, str(relative), accusation)
      for name, section in marked_source.sections(module, text, examples).items():
        lines = section.lines if name in impure_names else section.own
        said = [words for line, words in complaints.items() if line in lines]
        judgements[name] = Judgement(IMPURE, said[0]) if said else Judgement(PURE)
  return judgements


def _printed(module_and_arguments, folder) -> str:
  """What `python -m ...` prints; a failure to run raises."""
  process = subprocess.run([sys.executable, "-m", *module_and_arguments], cwd=folder, text=True,
                           capture_output=True, stdin=subprocess.DEVNULL, encoding="utf-8")
  if process.returncode not in (0, 1) or "Traceback" in process.stderr:
    raise RuntimeError(f"{module_and_arguments[0]}: {process.stderr or process.stdout}")
  return process.stdout


def _function_and_owner(function):
  """The function as its `def` makes it, where a method or an object is called, and its `self`."""
  if isinstance(function, types.MethodType):
    return function.__func__, (function.__self__,)
  called = vars(type(function)).get("__call__")
  if isinstance(called, types.FunctionType) and not hasattr(function, "__wrapped__"):
    return called, (function,)
  return function, ()


def _legitimate_globals(function) -> list[str]:
  """Names of modules, classes and functions, and of tuples of functions: what may be allowed."""
  def legitimate(value):
    if isinstance(value, tuple) and value:
      return all(map(callable, value))
    return callable(value) or isinstance(value, types.ModuleType)
  return [name for name, value in function.__globals__.items() if legitimate(value)]


def main():
  examples = (*catalogue.IMPURE, *catalogue.PURE)
  json.dump(JUDGES[sys.argv[1]](examples), sys.stdout)


if __name__ == "__main__":
  main()
