"""The diagnosis of a call: whether its output matches the expected one, and if not, which known mistake explains it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from ...conformance.law.arguments import Arguments, ToWeights, masked_softmax
from ...conformance.mistakes.catalog import CATALOG
from ...conformance.mistakes.entries.scales import scaled
from ...conformance.mistakes.entries.scores import has_softcap
from ...conformance.mistakes.mistake import Mistake
from ...lens import Call
from .expected_output import Expected, expected_output, rows_to_read

MARGIN = 1  # times the noise, within which an output matches
REPORTED = 4  # times the noise, beyond which a difference is reported
CHUNK = 1 << 21  # weights computed together, which limits the memory for long texts
QUICK = 1 << 14  # weights computed to rule out a mistake


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

    def after(self, other: Cause) -> Cause:
        """Both causes together; this one was made from `other.arguments`."""
        return replace(
            self,
            checks=other.checks + self.checks,
            description=f"{other.description} and {self.description}",
            cause=f"{other.cause}; {self.cause}",
            fix=f"{other.fix}; {self.fix}",
        )


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
    ratio, _ = _compared(call, rows_to_read(call), np.arange(call.shape[0]))
    return None if np.isnan(ratio).all() else not bool((ratio > MARGIN).any())


def _diagnosed(call: Call) -> Diagnosis:
    if call.v is None or call.out is None or 0 in call.shape:
        return Diagnosis("unknown")
    rows, heads = rows_to_read(call), np.arange(call.shape[0])
    ratio, error = _compared(call, rows, heads)
    if np.isnan(ratio).all():
        return Diagnosis("unknown")
    wrong = ratio > REPORTED
    worst = int(np.nanargmax(np.where(np.isnan(ratio), -1, ratio)))
    result = Diagnosis(
        "matches",
        error=float(np.nanmax(error)),
        noise=float(error.flat[worst] / max(ratio.flat[worst], 1e-300)),
        rows=len(rows),
    )
    if not wrong.any():
        return replace(result, status="unknown") if (ratio > MARGIN).any() else result
    at = np.flatnonzero(wrong.any(1))
    result = replace(
        result,
        status="unexplained",
        error=float(error.flat[worst]),
        heads=tuple(at.tolist()),
        row=int(rows[np.argwhere(wrong)[:, 1].min()]),
    )
    explained = _explained(call, rows, at)
    if explained is None:
        return result
    cause, left = explained
    return replace(result, status="explained", cause=cause, left=left)


def arguments_of(call: Call) -> Arguments:
    """The arguments of a recorded call: one batch entry, and one mask and one score for everything."""
    H, Q, K = call.shape
    return Arguments(
        masks={} if call.mask is None else {"rule": call.mask},
        scores={} if call.score is None else {"softcap" if has_softcap(call.score) else "bias": call.score},
        scale=call.scale,
        start=call.start,
        sinks=call.sinks,
        heads=H,
        queries=Q,
        keys=K,
        depth=1 if call.q is None else call.q.shape[2],
        key_heads=np.arange(call.groups),
        value_heads=np.arange(call.groups if call.v is None else len(call.v)),
    )


def _causes(arguments: Arguments, mistakes: Iterable[Mistake] = SEEN) -> Iterator[Cause]:
    """The mistakes that change these arguments, with what they make of them."""
    for mistake in mistakes:
        changed = mistake.change(arguments)
        if changed is not None:
            yield Cause(mistake.checks, mistake.described(arguments), mistake.cause, mistake.fix, changed)


def _pairs(arguments: Arguments) -> Iterator[Cause]:
    """Two mistakes of different checks, one after the other."""
    for number, mistake in enumerate(SEEN):
        for first in _causes(arguments, [mistake]):
            others = [other for other in SEEN[number + 1 :] if not set(other.checks) & set(mistake.checks)]
            yield from (second.after(first) for second in _causes(first.arguments, others))


def _with_arguments(call: Call, arguments: Arguments) -> Call:
    """The call with other arguments."""
    return replace(
        call,
        mask=arguments.mask,
        score=arguments.score,
        scale=arguments.scale,
        start=arguments.start,
        sinks=arguments.sinks,
        k=_heads_of(call.k, arguments.key_heads),
        v=_heads_of(call.v, arguments.value_heads),
    )


def _heads_of(part: np.ndarray | None, heads: np.ndarray) -> np.ndarray | None:
    """These heads of an array, without a copy if they are all its heads in order."""
    return part if part is None or np.array_equal(heads, np.arange(len(part))) else part[heads]


def _compared(
    call: Call, rows: np.ndarray, heads: np.ndarray, to_weights: ToWeights = masked_softmax
) -> tuple[np.ndarray, np.ndarray]:
    """(largest difference as a multiple of the noise, largest difference), (heads, rows) each; NaN in rows that cannot
    be compared.
    """
    step = max(1, CHUNK // max(1, len(rows) * call.shape[2]))
    parts = [heads[first : first + step] for first in range(0, len(heads), step)]
    results = [_against(call, expected_output(call, rows, part, to_weights), rows, part) for part in parts]
    return np.concatenate([ratio for ratio, _ in results]), np.concatenate([error for _, error in results])


def _against(call: Call, expected: Expected, rows: np.ndarray, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    actual = np.asarray(call.out[heads][:, rows], np.float64)  # type: ignore[index]
    with np.errstate(all="ignore"):
        error = np.abs(actual - expected.out)
        ratio = (error / expected.noise).max(-1)
    comparable = expected.comparable & np.isfinite(actual).all(-1)
    return np.where(comparable, ratio, np.nan), np.where(comparable, error.max(-1), np.nan)


def _explained(call: Call, rows: np.ndarray, heads: np.ndarray) -> tuple[Cause, float] | None:
    """The first mistake that explains the heads that are wrong, and the difference that remains. Tried in order: each
    known mistake, a fitted scale, permuted heads, and pairs of known mistakes.
    """
    some = heads[:4]
    count = min(len(rows), max(8, QUICK // max(1, len(some) * call.shape[2])))
    few = rows[np.linspace(0, len(rows) - 1, count).round().astype(int)]

    def compared(arguments: Arguments, at: np.ndarray, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return _compared(_with_arguments(call, arguments), at, which, arguments.to_weights)

    def explains(cause: Cause) -> bool:
        stages = (few, some[:1]), (few, some), (rows, heads)
        return all(_within(compared(cause.arguments, at, which)[0]) for at, which in stages)

    single = [] if call.given is not None else list(_causes(arguments_of(call)))
    first_match = next(
        filter(explains, itertools.chain(single, _fitted_scale(call, few, some) if single else ())), None
    )
    if first_match is None:
        permuted = _permuted(call, rows, heads)
        if permuted is not None:
            return permuted
        first_match = next(filter(explains, _pairs(arguments_of(call)) if single else ()), None)
    if first_match is None:
        return None
    return first_match, float(np.nanmax(compared(first_match.arguments, rows, heads)[1]))


def _within(ratio: np.ndarray) -> bool:
    """Whether at least half of the rows could be compared, and rounding explains all of their differences."""
    known = ~np.isnan(ratio)
    return bool(known.sum() * 2 >= known.size and known.any() and not (ratio[known] > MARGIN).any())


def _fitted_scale(call: Call, rows: np.ndarray, heads: np.ndarray) -> Iterator[Cause]:
    """The scale that fits the output best: a coarse search over its magnitude, then a fine one around the best."""

    def off(power: float) -> float:
        error = _compared(replace(call, scale=call.scale * 2.0**power), rows, heads)[1]
        return float(np.nansum(error**2)) if not np.isnan(error).all() else np.inf

    coarse = np.linspace(-8, 8, 65)
    best = coarse[int(np.argmin([off(power) for power in coarse]))]
    low, high = best - 0.25, best + 0.25
    golden = (5**0.5 - 1) / 2
    for _ in range(50):
        a, b = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, b) if off(a) < off(b) else (a, high)
    factor = 2.0 ** ((low + high) / 2)
    fitted = scaled(
        "scale-fitted",
        f"a scale {factor:.4g} times as large",
        "the implementation uses another scale than the argument",
        lambda arguments: arguments.scale * factor,
    )
    yield from _causes(arguments_of(call), [fitted])


def _permuted(call: Call, rows: np.ndarray, heads: np.ndarray) -> tuple[Cause, float] | None:
    """Outputs of other heads, or outputs with the head axis and the row axis swapped."""
    assert call.out is not None
    every, (H, Q, _) = np.arange(call.shape[0]), call.shape
    expected = expected_output(call, rows, every)
    sources, left = [], 0.0
    for head in heads:
        repeated = replace(call, out=np.broadcast_to(call.out[head], call.out.shape))
        ratio, error = _against(repeated, expected, rows, every)
        source = next((int(h) for h in every if h != head and _within(ratio[h])), None)
        if source is None:
            break
        sources.append(source)
        left = max(left, float(np.nanmax(error[source])))
    if len(sources) == len(heads):
        shown = ", ".join(f"{source} in place of {head}" for head, source in list(zip(heads.tolist(), sources))[:8])
        return Cause(
            ("heads",),
            f"other heads ({shown})",
            "heads are split and merged in different orders",
            "split and merge the heads with the same view and transpose",
            arguments_of(call),
        ), left
    if len(rows) < Q or 1 in (H, Q):
        return None
    swapped = expected._replace(
        out=expected.out.swapaxes(0, 1).reshape(expected.out.shape),
        noise=expected.noise.swapaxes(0, 1).reshape(expected.out.shape),
    )
    ratio, error = _against(call, swapped, rows, every)
    return (
        (
            Cause(
                ("heads",),
                "the head axis and the row axis swapped",
                "reshape is used where a transpose is needed",
                "call transpose(1, 2) before reshape",
                arguments_of(call),
            ),
            float(np.nanmax(error)),
        )
        if _within(ratio)
        else None
    )
