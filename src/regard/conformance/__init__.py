"""Conformance: which laws of attention a function keeps, and which it breaks, with the smallest counterexample.

`conform` judges a function, `infer` measures its conventions, and the decorator `adapter` declares them.
"""

from ..common.public import belong
from .cases.case import LEVELS
from .conventions.adapter_file import read as read_adapter
from .conventions.adapter_file import schema
from .conventions.decorator import adapter
from .conventions.fields import Adapter
from .findings import Finding
from .formats.badge import badge
from .formats.junit import junit
from .formats.markdown import markdown
from .infer import Inferred, infer
from .report import Report
from .run import conform

__all__ = [
    "LEVELS",
    "Adapter",
    "Finding",
    "Inferred",
    "Report",
    "adapter",
    "badge",
    "conform",
    "infer",
    "junit",
    "markdown",
    "read_adapter",
    "schema",
]

belong("regard.conformance")
