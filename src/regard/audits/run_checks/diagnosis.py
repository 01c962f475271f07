"""The diagnosis of a call: whether its output matches the expected one, and if not, which known mistake explains it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from ...laws.arguments import Arguments
from ...laws.catalog import CATALOG
from ...laws.explain import explain
from ...laws.forward import Part
from ...lens import Call
from .observed_call import MARGIN, ObservedCall, arguments_of, difference, expected, rows_to_read, within

REPORTED = 4  # times the noise, beyond which a difference is reported

# The mistakes that the outputs of a recorded run can show: those that are reported by a check. The others change what
# a run does not hold: several batch entries, lse, gradients, fully masked rows, other values.
SEEN = tuple(mistake for mistake in CATALOG if mistake.checks)


@dataclass(frozen=True, eq=False)
class Cause:
    """Why an output is wrong. checks: names of the checks that report it · description: completes "the output is that
    of attention with …" · arguments: those that produce the output
    """

    checks: tuple[str, ...]
    description: str
    cause: str
    fix: str
    arguments: Arguments


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What is known about the output of one call.

    status: "matches", "explained" (by the cause), "unexplained", or "unknown" (values or outputs were not kept, or
    the difference may or may not be rounding)
    error: the largest difference from the expected output · noise: the rounding error that is possible there · heads:
    the heads that differ · row: the first row that differs · rows: how many rows were read · left: the largest
    difference from the output with that cause
    """

    status: str
    error: float = 0.0
    noise: float = 0.0
    heads: tuple[int, ...] = ()
    row: int = 0
    rows: int = 0
    cause: Cause | None = None
    left: float = 0.0


_known: WeakKeyDictionary[Call, Diagnosis] = WeakKeyDictionary()


def diagnose(call: Call) -> Diagnosis:
    """The diagnosis of a call; computed only the first time."""
    if call not in _known:
        _known[call] = _diagnosed(call)
    return _known[call]


def matches(call: Call) -> bool | None:
    """Whether the output matches the inputs and arguments of the call; None where that is unknown."""
    if call.out is None or call.v is None or call.q is None:
        return None
    every = Part(np.arange(call.shape[0]), rows_to_read(call))
    ratio = ObservedCall(call, every).difference(arguments_of(call), every).ratio
    return None if np.isnan(ratio).all() else not bool((ratio > MARGIN).any())


def _diagnosed(call: Call) -> Diagnosis:
    if call.v is None or call.out is None or 0 in call.shape:
        return Diagnosis("unknown")
    every = Part(np.arange(call.shape[0]), rows_to_read(call))
    ratio, error = ObservedCall(call, every).difference(arguments_of(call), every)
    if np.isnan(ratio).all():
        return Diagnosis("unknown")
    wrong = ratio > REPORTED
    worst = int(np.nanargmax(np.where(np.isnan(ratio), -1, ratio)))
    result = Diagnosis(
        "matches",
        error=float(np.nanmax(error)),
        noise=float(error.flat[worst] / max(ratio.flat[worst], 1e-300)),
        rows=len(every.rows),
    )
    if not wrong.any():
        return replace(result, status="unknown") if (ratio > MARGIN).any() else result
    at = np.flatnonzero(wrong.any(1))
    result = replace(
        result,
        status="unexplained",
        error=float(error.flat[worst]),
        heads=tuple(at.tolist()),
        row=int(every.rows[np.argwhere(wrong)[:, 1].min()]),
    )
    explained = _explained(call, every._replace(heads=at))
    if explained is None:
        return result
    cause, left = explained
    return replace(result, status="explained", cause=cause, left=left)


def _explained(call: Call, wrong: Part) -> tuple[Cause, float] | None:
    """What explains the heads that are wrong, and the difference that remains: permuted heads, or known mistakes."""
    permuted = _permuted(call, wrong)
    if permuted is not None:
        return permuted
    seen = ObservedCall(call, wrong)
    mistakes = explain([seen], catalog=SEEN)[0].mistakes
    arguments = seen.mistaken(mistakes)
    if arguments is None:
        return None
    descriptions, at = [], seen.arguments
    for mistake in mistakes:
        descriptions.append(mistake.described(at))
        at = mistake.change(at) or at
    cause = Cause(
        checks=tuple(dict.fromkeys(check for mistake in mistakes for check in mistake.checks)),
        description=" and ".join(descriptions),
        cause="; ".join(mistake.cause for mistake in mistakes),
        fix="; ".join(mistake.fix for mistake in mistakes),
        arguments=arguments,
    )
    return cause, float(np.nanmax(seen.difference(arguments, wrong).error))


def _permuted(call: Call, wrong: Part) -> tuple[Cause, float] | None:
    """Outputs of other heads, or outputs with the head axis and the row axis swapped."""
    assert call.out is not None
    (H, Q, _), arguments = call.shape, arguments_of(call)
    every = Part(np.arange(H), wrong.rows)
    right = expected(call, arguments, every)
    sources, left = [], 0.0
    for head in wrong.heads:
        repeated = replace(call, out=np.broadcast_to(call.out[head], call.out.shape))
        ratio, error = difference(repeated, every, right)
        source = next((int(h) for h in every.heads if h != head and within(ratio[h])), None)
        if source is None:
            break
        sources.append(source)
        left = max(left, float(np.nanmax(error[source])))
    if len(sources) == len(wrong.heads):
        shown = ", ".join(f"{source} in place of {head}" for head, source in list(zip(wrong.heads, sources))[:8])
        return Cause(
            ("heads",),
            f"other heads ({shown})",
            "heads are split and merged in different orders",
            "split and merge the heads with the same view and transpose",
            arguments,
        ), left
    if len(wrong.rows) < Q or 1 in (H, Q):
        return None
    swapped = right._replace(
        out=right.out.swapaxes(0, 1).reshape(right.out.shape),
        noise=right.noise.swapaxes(0, 1).reshape(right.out.shape),
    )
    ratio, error = difference(call, every, swapped)
    if not within(ratio):
        return None
    return Cause(
        ("heads",),
        "the head axis and the row axis swapped",
        "reshape is used where a transpose is needed",
        "call transpose(1, 2) before reshape",
        arguments,
    ), float(np.nanmax(error))
