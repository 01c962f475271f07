"""Description: what a function says about itself before it is called: its parameters, its adapter, its version."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..conventions.fields import Adapter
from ..conventions.parameters import Parameter, parameters_of
from .plain_text import one_line

DECLARED = "__regard_adapter__"  # the attribute in which the decorator keeps the adapter


@dataclass(frozen=True, kw_only=True)
class Description:
    """A function. name: qualified, as in "package.module.function" · parameters: empty if Python cannot tell them ·
    adapter: that which it declares, or None · version: of its package, or "" · events: what happened when it was
    imported, in words
    """

    name: str
    parameters: tuple[Parameter, ...]
    adapter: Adapter | None = None
    version: str = ""
    events: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The fields in the types of JSON."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Description:
        """The inverse of `as_json`."""
        adapter = fields["adapter"]
        return cls(
            name=str(fields["name"]),
            parameters=tuple(Parameter(**each) for each in fields["parameters"]),
            adapter=None if adapter is None else Adapter(**{name: _frozen(each) for name, each in adapter.items()}),
            version=str(fields["version"]),
        )


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def describe(function: Callable[..., Any]) -> Description:
    """Reads what a function says about itself."""
    kind = type(function)
    module = getattr(function, "__module__", None) or kind.__module__
    name = getattr(function, "__qualname__", None) or kind.__qualname__
    version = getattr(sys.modules.get(str(module).split(".")[0]), "__version__", "")
    adapter = getattr(function, DECLARED, None)
    return Description(
        name=one_line(f"{module}.{name}"),
        parameters=parameters_of(function),
        adapter=adapter if isinstance(adapter, Adapter) else None,
        version=one_line(version) if isinstance(version, str) else "",
    )
