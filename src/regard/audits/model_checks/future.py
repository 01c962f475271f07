"""Whether the future shows: outputs before a position must not feel what stands at it or after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..difference import Gap, gap, listed, placed
from ..finding import Finding, Passed, Result, Skipped
from ..subject import Subject

__all__ = ["future_leak"]

PROBES = 6


def future_leak(subject: Subject) -> Iterator[Result]:
    """For several t: all tokens from t on are replaced, and every output before t stays as it was.

    With the inputs alone, with padding behind them, and while a cache is filled, because models build their mask
    another way in each.
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
    if subject.whole and {"use_cache", "past_key_values"} <= subject.takes:
        ways["while a cache is filled"] = {**_bare(subject), "use_cache": True}
    found = {way: probe(subject, given) for way, given in ways.items()}
    leaks = {way: [(t, each) for t, each in gaps if each.open] for way, gaps in found.items()}
    if not any(leaks.values()):
        largest = max((each for gaps in found.values() for _, each in gaps), key=lambda each: each.size)
        yield Passed(
            "future-leak",
            f"outputs before t = {listed([t for t, _ in next(iter(found.values()))])} feel nothing of what "
            f"follows: {largest}",
        )
        return
    way, (t, worst) = max(
        ((way, each) for way, gaps in leaks.items() for each in gaps), key=lambda each: each[1][1].size
    )
    reach = max(t - min(each.rows) for gaps in leaks.values() for t, each in gaps)
    leaking = [way for way in leaks if leaks[way]]
    cause, mend = _reason(subject, leaking, [way for way in ways if way not in leaking], reach)
    yield Finding(
        check="future-leak",
        severity="fault",
        where=f"what stands at {t} and after it shows at {placed(worst.rows)}, {' and '.join(leaking)}",
        measured=f"with tokens {t} to {subject.length - 1} replaced, {worst} before them; {len(leaks[way])} "
        f"of {len(found[way])} places leak, "
        f"from up to {reach} positions ahead; declared causal by {subject.why}",
        cause=cause,
        mend=mend,
        row=max(worst.rows),
        numbers={**worst.numbers(), "changed_from": t, "reach": reach, "ways": leaking},
    )


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
            here.append(
                gap(
                    subject,
                    {name: part[:, :t] for name, part in found.items()},
                    {name: part[:, :t] for name, part in before.items()},
                )
            )
            if not here[-1].open:
                break
        gaps.append((t, min(here, key=lambda each: each.open)))
    return gaps


def _bare(subject: Subject) -> dict[str, Any]:
    """The inputs without their mask."""
    return {name: part for name, part in subject.given.items() if subject.mask is None or name != subject.mask.name}


def _reason(subject: Subject, leaking: list[str], tight: list[str], reach: int) -> tuple[str, str]:
    """(the likely cause, what to do) of a leak from up to `reach` positions ahead."""
    if _flags(getattr(subject.model, "decoder", subject.model)) == {False}:
        return (
            "the configuration of what writes says is_decoder=False, so it attends in both directions",
            "config.is_decoder = True before the model is made",
        )
    layers = getattr(subject.model.config.get_text_config(), "num_hidden_layers", 1) if subject.whole else 1
    if reach <= layers < subject.length // 2:
        return (
            "the causal mask is off by one in a layer or more: key ≤ query + 1 instead of key ≤ query",
            "let row i see key j only where j ≤ i; shift the labels, not the inputs",
        )
    if tight:
        return (
            (
                f"causality is lost {' and '.join(leaking)}, and holds {' and '.join(tight)}: one of the ways to "
                "a mask leaves it out"
            ),
            "build the causal mask in every case; until then try another attn_implementation, and audit again",
        )
    return (
        "attention without a causal mask, a mask in the wrong sense, or a view or norm that mixes positions",
        "mask the keys behind the query in every layer, and check every view where positions meet heads",
    )


def _flags(module) -> set[bool]:
    """What the layers of a module say about being a decoder."""
    return {
        flag
        for part in getattr(module, "modules", list)()
        if isinstance(flag := getattr(part, "is_decoder", None), bool)
    }
