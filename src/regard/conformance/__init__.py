"""Conformance: which laws of attention a function keeps, and which it breaks, with the smallest counterexample.

`conform` judges a function, `infer` measures its conventions, and the decorator `adapter` declares them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ..common.public import belongs, no_attribute

if TYPE_CHECKING:  # for editors and type checkers; at run time these are loaded on first access
    from .cases.case import LEVELS
    from .conventions.adapter_file import adapter, schema
    from .conventions.adapter_file import read as read_adapter
    from .conventions.fields import Adapter
    from .inference import Inferred, infer
    from .report import Finding, Report, badge, junit, markdown
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

# Where the names are. The process that runs the judged function needs few of them, and is started after every crash.
PLACES = {
    "LEVELS": ("cases.case", "LEVELS"),
    "Adapter": ("conventions.fields", "Adapter"),
    "Finding": ("report", "Finding"),
    "Inferred": ("inference", "Inferred"),
    "Report": ("report", "Report"),
    "adapter": ("conventions.adapter_file", "adapter"),
    "badge": ("report", "badge"),
    "conform": ("run", "conform"),
    "infer": ("inference", "infer"),
    "junit": ("report", "junit"),
    "markdown": ("report", "markdown"),
    "read_adapter": ("conventions.adapter_file", "read"),
    "schema": ("conventions.adapter_file", "schema"),
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise no_attribute(__name__, name)
    module, original = PLACES[name]
    return belongs(getattr(importlib.import_module(f".{module}", __name__), original), __name__)


def __dir__() -> list[str]:
    """The public names, for editors."""
    return sorted(__all__)
