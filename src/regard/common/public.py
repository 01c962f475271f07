"""Public classes say the package from which people import them, so that tracebacks and pickles name no file."""

from __future__ import annotations

import sys

__all__ = ["belongs", "belong"]


def belong(package: str) -> None:
    """Every class among the loaded public names of a package of regard says that it is the package's."""
    names = vars(sys.modules[package])
    for name in names["__all__"]:
        if name in names:
            belongs(names[name], package)


def belongs(value, package: str):
    """The value; if it is a class of regard, it says from now on that it is the package's."""
    if isinstance(value, type) and value.__module__.startswith(f"{package}."):
        value.__module__ = package
    return value
