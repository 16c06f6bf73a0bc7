"""Is this function pure, and if not, which rule does it break, where, and what to do instead?"""

from hklm.purity.checker import check
from hklm.purity.models import check_model
from hklm.purity.report import LIMITS, Finding, PurityReport, Rule
from hklm.purity.testing import PurityAssertions, assert_pure

__all__ = ["LIMITS", "Finding", "PurityAssertions", "PurityReport", "Rule", "assert_pure", "check",
           "check_model"]
