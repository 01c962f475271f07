"""Audits: checks that detect faults in the attention of a model or of a recorded run, with likely causes and fixes.

audit         the public entry point; finding: its results
checks        the table of all checks; a new check is registered there
model_checks  checks that run a model several times with changed inputs (make_subject builds the Subject they run)
run_checks    checks that read a recorded run
auditable     what can be audited; restored: leaves a model as it was
declarations  which arguments of a forward are padding masks, and whether a model declares itself causal
difference    the difference between two runs; rounding: how much of it rounding alone can explain
"""

from ..common.public import belong
from .audit import Audit, audit
from .finding import Finding

__all__ = ["Audit", "Finding", "audit"]

belong(__name__)
