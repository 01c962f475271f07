"""Dispatch: selects the CPU or the device implementation of a call.

Tensors on another device are computed by gpu/entry.py, everything else by cpu.py. Both define the same four functions
and choose an engine for each call. `solve`, `keep`, `pull_back`, `push_forward` and `second` compute a checked problem
on the CPU, and `attend_partly`, `merge_states` and `divide` partial results.
"""

from __future__ import annotations

from typing import Any

from ..common.arrays import elsewhere
from ..language.checks.arguments import Arguments
from . import cpu
from .choice import Explained, choose, why_not
from .cpu import attend_partly, divide, keep, measured, merge_states, pull_back, push_forward, second, solve
from .fast_path import Autograd

__all__ = [
    "Autograd",
    "Explained",
    "attend",
    "attend_partly",
    "choose",
    "divide",
    "explained",
    "keep",
    "measured",
    "merge_states",
    "pull_back",
    "push_forward",
    "second",
    "solve",
    "statistics",
    "weights",
    "why_not",
]


def _home(q) -> Any:
    """The module that computes arrays on the device of this one."""
    if not elsewhere(q):
        return cpu
    from .gpu import entry

    return entry


def attend(q, k, v, arguments: Arguments, engine="auto", **how) -> tuple[Any, ...]:
    """(out,) or (out, lse) of one call, as `cpu.attend` describes it."""
    return _home(q).attend(q, k, v, arguments, engine, **how)


def weights(q, k, arguments: Arguments, rows, keys):
    """The weights of selected rows and keys, (…, H, rows, keys)."""
    return _home(q).weights(q, k, arguments, rows, keys)


def statistics(q, k, of, arguments: Arguments, engine="auto") -> dict[str, Any]:
    """The results of `attention_stats` by name."""
    return _home(q).statistics(q, k, of, arguments, engine)


def explained(q, k, v, arguments: Arguments, engine="auto") -> Explained:
    """How a call would be computed."""
    return _home(q).explained(q, k, v, arguments, engine)
