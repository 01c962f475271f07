"""Sets the module that public classes report, so that tracebacks and pickles do not name a private file."""

from __future__ import annotations

import sys

__all__ = ["belongs", "belong"]


def belong(package: str) -> None:
    """Sets the module of every loaded class in the `__all__` of a package of regard to the package."""
    names = vars(sys.modules[package])
    for name in names["__all__"]:
        if name in names:
            belongs(names[name], package)


def belongs(value, package: str):
    """The value; if it is a class of regard, its module is set to the package."""
    if isinstance(value, type) and value.__module__.startswith(f"{package}."):
        value.__module__ = package
    return value
