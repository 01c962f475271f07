"""Whether the future shows: outputs before a position must not feel what stands at it or after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..finding import Finding, Passed, Result, Skipped
from ..gap import Gap, gap
from ..subject import Subject

__all__ = ["future_leak"]

PROBES = 6


def future_leak(subject: Subject) -> Iterator[Result]:
    """For several t: all tokens from t on are replaced, and every output before t stays as it was.

    Once with the inputs as they are, and once with padding behind them, because models take other paths with a mask.
    """
    if subject.sequence is None or subject.length < 2:
        yield Skipped("future-leak", "no input is a sequence of at least two positions")
        return
    if not subject.causal:
        yield Skipped("future-leak", f"not declared causal: {subject.why}")
        return
    if not subject.rows(subject.outputs):
        yield Skipped("future-leak", "no output has a row for each position")
        return
    ways: dict[str, Mapping[str, Any]] = {"without a mask": _bare(subject)}
    if subject.mask is not None and subject.mask.of == subject.sequence:
        ways["with padding"] = subject.lengthened(right=3)
    found = {way: probe(subject, given) for way, given in ways.items()}
    leaks = {way: [(t, each) for t, each in gaps if each.open] for way, gaps in found.items()}
    if not any(leaks.values()):
        largest = max((each for gaps in found.values() for _, each in gaps), key=lambda each: each.size)
        yield Passed("future-leak", f"outputs before t = {_listed([t for t, _ in next(iter(found.values()))])} feel nothing of what "
                     f"follows: {largest}")  # fmt: skip
        return
    way, (t, worst) = max(((way, each) for way, gaps in leaks.items() for each in gaps), key=lambda found: found[1][1].size)
    reach = max(t - min(each.rows) for gaps in leaks.values() for t, each in gaps if each.rows)
    always = [way for way in leaks if leaks[way]]
    yield Finding(
        "future-leak", "fault", f"positions {_listed(worst.rows)} feel what stands at {t} and after it, {' and '.join(always)}",
        f"with tokens {t} to {subject.length - 1} replaced, {worst} before them; {len(leaks[way])} of {len(found[way])} places leak, "
        f"from up to {reach} positions ahead", _cause(subject, leaks, reach), _mend(leaks, reach), row=max(worst.rows),
        numbers={**worst.numbers(), "changed_from": t, "reach": reach, "ways": always, "causal": subject.why},
    )  # fmt: skip


def probe(subject: Subject, given: Mapping[str, Any]) -> list[tuple[int, Gap]]:
    """For each place t, the gap of the outputs before it; a gap counts only if two different replacements show it."""
    assert subject.sequence is not None
    import torch

    n, sequence = subject.length, given[subject.sequence]
    before = subject.rows(subject.run(given), sequence.shape[1])
    gaps = []
    for t in sorted({max(1, round(n * part / PROBES)) for part in range(PROBES)} | {n - 1}):
        here = []
        for turn in range(2):
            other = torch.cat([sequence[:, :t], subject.redrawn(sequence[:, t:n], turn, sequence), sequence[:, n:]], 1)
            found = subject.rows(subject.run({**given, subject.sequence: other}), sequence.shape[1])
            here.append(gap(subject, {name: part[:, :t] for name, part in found.items()},
                            {name: part[:, :t] for name, part in before.items()}))  # fmt: skip
            if not here[-1].open:
                break
        gaps.append((t, min(here, key=lambda each: each.open)))
    return gaps


def _bare(subject: Subject) -> dict[str, Any]:
    """The inputs without their mask."""
    return {name: part for name, part in subject.given.items() if subject.mask is None or name != subject.mask.name}


def _cause(subject: Subject, leaks, reach: int) -> str:
    if getattr(getattr(subject.model, "config", None), "is_decoder", None) is False and subject.why.startswith(
        "it can generate"
    ):
        return "config.is_decoder is False: this class has a head that writes, and attends in both directions"
    if reach == 1:
        return "the causal mask is off by one (key ≤ query + 1), or the inputs are shifted as the labels should be"
    if len(leaks) == 2 and bool(leaks["without a mask"]) != bool(leaks["with padding"]):
        where = (
            "only where no mask is given: whoever relies on is_causal"
            if leaks["without a mask"]
            else "only with a padding mask: it"
        )
        return f"{where} drops causality on one of its two paths"
    return "attention without a causal mask, a mask of the wrong sense, or something else that mixes positions (convolution, norm, pooling)"


def _mend(leaks, reach: int) -> str:
    if reach == 1:
        return "let key j be seen by query i only where j ≤ i; shift the labels, not the inputs"
    if len(leaks) == 2 and bool(leaks["without a mask"]) != bool(leaks["with padding"]):
        return "build the causal mask on both paths; until then, try another attn_implementation and audit again"
    return (
        "mask keys after the query in every layer (is_decoder=True, is_causal=True, or mask=regard.causal()), and audit again"
    )


def _listed(numbers) -> str:
    numbers = list(numbers)
    if len(numbers) > 1 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) if len(numbers) <= 8 else f"{numbers[0]}, …, {numbers[-1]}"
