"""HTML: the cost of a model as one page that computes it for any tokens, batch, number format and phase."""

from __future__ import annotations

import functools
import html
from importlib.resources import files
from typing import Any

from ...common.web.html_page import filled, hashed, json_for_html, stripped
from ..machine import Machine
from .terms import terms

__all__ = ["page", "written"]

SCRIPTS = ("exact", "price", "words", "layers", "curve", "memory", "controls")


def page(model: Any, *, start: dict[str, Any] | None = None, machine: Machine | None = None) -> str:
    """The page of a model: its formulas, found here, and the script that computes with them.

    Args:
        model: as for `regard.cost`.
        start: what is chosen first: tokens, batch, phase, dtype, memory (bytes).
        machine: one more machine beside those that regard knows, chosen first.

    Returns:
        The HTML text, one file that opens without a network.

    Raises:
        Refused: the model cannot be built or run without data.
    """
    return written(terms(model), start, machine)


def written(found: dict[str, Any], start: dict[str, Any] | None = None, machine: Machine | None = None) -> str:
    """The page of formulas that are found already."""
    machines = {name: Machine.named(name) for name in Machine.shipped()}
    chosen = next((name for name, each in machines.items() if each == machine), "own" if machine else None)
    if machine is not None:
        machines.setdefault(str(chosen), machine)
    data = {
        "terms": found,
        "machines": {name: _plain(each) for name, each in machines.items()},
        "start": {"machine": chosen, **(start or {})},
    }
    policy = (
        f"default-src 'none'; script-src {hashed(_script())}; style-src {hashed(_style())}; img-src data:; "
        "connect-src 'none'; base-uri 'none'; form-action 'none'"
    )
    parts = {
        "policy": html.escape(policy, quote=True),
        "title": html.escape(f"regard · cost of {found['name']}"),
        "style": _style(),
        "script": _script(),
        "data": json_for_html(data),
    }
    return filled(_part("page.html"), parts)


def _plain(machine: Machine) -> dict[str, Any]:
    names = ("name", "peak", "bandwidth", "memory", "cache")
    return {name: getattr(machine, name) for name in names}


def _part(name: str) -> str:
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    return "\n".join(stripped(_part(f"{name}.js")) for name in SCRIPTS)


@functools.cache
def _style() -> str:
    return stripped(_part("page.css"))
