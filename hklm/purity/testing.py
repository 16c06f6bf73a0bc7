"""Purity as an assertion, alone or in test cases."""

from collections.abc import Callable

from hklm.purity.checker import check
from hklm.purity.models import check_model
from hklm.purity.report import PurityReport


def assert_pure(function: Callable, /, *args, **kwargs) -> PurityReport:
  """Checks with `check`, and raises unless the verdict is "pure".

  Args:
    function, *args, **kwargs: as for `check`, options included.

  Returns:
    The report, for whoever wants to see what could not be checked.

  Raises:
    AssertionError: the function is impure, or could not be run; the message is the report: which
      rule it breaks, what it touches, at which line, and what to do instead.

  >>> import random
  >>> try:
  ...   assert_pure(lambda x: x * random.random(), 21)
  ... except AssertionError as error:
  ...   print(str(error).splitlines()[1].strip())
  advances the generator of `random`
  """
  return _passed(check(function, *args, **kwargs))


def _passed(report: PurityReport) -> PurityReport:
  if not report.pure:
    raise AssertionError(str(report))
  return report


class PurityAssertions:
  """Mixed into a test case of `unittest`, absl or chex.

  >>> from absl.testing import absltest
  >>> class MyTest(PurityAssertions, absltest.TestCase):
  ...   def test_double(self):
  ...     self.assertPure(lambda x: 2 * x, 21)
  >>> MyTest("test_double").run().wasSuccessful()
  True
  """

  def assertPure(self, function: Callable, /, *args, **kwargs) -> PurityReport:
    """As `assert_pure`."""
    return assert_pure(function, *args, **kwargs)

  def assertModelPure(self, lm, params, **kwargs) -> PurityReport:
    """As `assert_pure`, for every function of a language model; options as for `check_model`."""
    return _passed(check_model(lm, params, **kwargs))
