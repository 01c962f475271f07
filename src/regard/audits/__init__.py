"""Audits: what is wrong with the attention of a model: found, named, and with what to do about it.

audit         what people call; finding: what it answers
checks        the table of all checks: a new one is registered there
model_checks  checks that run a model (make_subject: what is given as a Subject), with something changed between runs
run_checks    checks that read a recorded run
difference    how far two runs lie apart, and rounding: how far rounding alone takes them
causality     whether a model says that it looks into the past only
"""

from ..common.public import belong
from .audit import Audit, audit
from .finding import Finding

__all__ = ["Audit", "Finding", "audit"]

belong(__name__)
