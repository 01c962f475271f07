"""Sets the module that public classes report, so that tracebacks and pickles do not name a private file."""

from __future__ import annotations

import sys

from .errors import nearest


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


def no_attribute(module: str, name: str) -> AttributeError:
    """The AttributeError of Python for a name that a package lacks, with the closest public name.

    >>> print(no_attribute("regard", "causl"))
    module 'regard' has no attribute 'causl'; did you mean 'causal'?
    """
    close = nearest(name, vars(sys.modules[module])["__all__"]) if name[:1] != "_" else None
    hint = f"; did you mean {close!r}?" if close else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}", name=name, obj=sys.modules[module])
