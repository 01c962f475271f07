"""Dispatch: where a call is computed.

What people call comes in here: tensors on a device go to gpu/entry.py, everything else to cpu.py. Both have the same
four functions, and each chooses its engine. Below them, on the CPU, a checked problem goes to the engine of its name.
"""

from __future__ import annotations

from typing import Any

from ..common.arrays import elsewhere
from ..language.checks.arguments import Arguments
from . import cpu
from .choice import ENGINES, Explained, choose, why_not
from .cpu import Saved, keep, pull_back, solve

__all__ = [
    "ENGINES",
    "Explained",
    "Saved",
    "attend",
    "choose",
    "explained",
    "keep",
    "pull_back",
    "solve",
    "statistics",
    "weights",
    "why_not",
]


def _home(q) -> Any:
    """What computes arrays that lie where this one does."""
    if not elsewhere(q):
        return cpu
    from .gpu import entry

    return entry


def attend(
    q, k, v, asked: Arguments, engine="auto", *, lse=False, out=None, where="attention", differentiate=None
) -> tuple[Any, ...]:
    """(out,) or (out, lse) of one call, as `cpu.attend` describes it."""
    attend = _home(q).attend
    return attend(q, k, v, asked, engine, lse=lse, out=out, where=where, differentiate=differentiate)


def weights(q, k, asked: Arguments, rows, keys):
    """The weights of chosen rows and keys, (…, H, rows, keys)."""
    return _home(q).weights(q, k, asked, rows, keys)


def statistics(q, k, of, asked: Arguments, engine="auto") -> dict[str, Any]:
    """The answers of `attention_stats` by name."""
    return _home(q).statistics(q, k, of, asked, engine)


def explained(q, k, v, asked: Arguments, engine="auto") -> Explained:
    """What would compute a call, and how."""
    return _home(q).explained(q, k, v, asked, engine)
