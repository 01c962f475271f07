"""Audits: checks that detect faults in the attention of a model or of a recorded run, with likely causes and fixes.

audit         the public entry point; finding: its results, and the difference between two runs of a model
checks        the table of all checks; a new check is registered there
model_checks  checks that run a model several times with changed inputs
run_checks    checks that read a recorded run
subject       a model with its inputs; make_subject: how it is built, and of what; restored: leaves it as it was
rounding      how much of a difference rounding alone can explain
"""

from ..common.public import belong
from .audit import Audit, audit
from .finding import Finding

__all__ = ["Audit", "Finding", "audit"]

belong(__name__)
