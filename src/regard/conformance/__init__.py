"""Conformance: which laws of attention a function keeps, and which it breaks, with the smallest counterexample.

`conform` judges a function, `infer` measures its conventions, and the decorator `adapter` declares them.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ..common.public import belongs, no_attribute

if TYPE_CHECKING:  # for editors and type checkers; at run time these are loaded on first access
    from .cases.case import LEVELS
    from .conventions.adapter_file import adapter, read_adapter, schema
    from .conventions.fields import Adapter
    from .report import Finding, Report, badge, junit, markdown
    from .run import Inferred, conform, infer

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
    "LEVELS": "cases.case",
    "Adapter": "conventions.fields",
    "Finding": "report",
    "Inferred": "run",
    "Report": "report",
    "adapter": "conventions.adapter_file",
    "badge": "report",
    "conform": "run",
    "infer": "run",
    "junit": "report",
    "markdown": "report",
    "read_adapter": "conventions.adapter_file",
    "schema": "conventions.adapter_file",
}


def __getattr__(name: str) -> Any:
    if name not in PLACES:
        raise no_attribute(__name__, name)
    return belongs(getattr(importlib.import_module(f".{PLACES[name]}", __name__), name), __name__)


def __dir__() -> list[str]:
    """The public names, for editors."""
    return sorted(__all__)
