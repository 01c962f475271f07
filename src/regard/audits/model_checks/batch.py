"""Whether entries of a batch feel each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..difference import gap
from ..finding import Finding, Passed, Result, Skipped
from ..subject import Outputs, Subject

__all__ = ["batch_dependence"]


def batch_dependence(subject: Subject) -> Iterator[Result]:
    """The outputs of an entry are the same alone, in a batch with others, and with others in their place."""
    if not all(part.ndim and part.shape[0] == 1 for part in subject.given.values()):
        yield Skipped("batch-dependence", "the inputs do not hold one entry each along axis 0")
        return
    batches = [_batch(subject, turn) for turn in (0, 10)]
    alone = {
        name: part
        for name, part in subject.outputs.items()
        if part.ndim and name in batches[0] and batches[0][name].shape == (3, *part.shape[1:])
    }
    if not alone:
        yield Skipped("batch-dependence", "no output has an entry for each entry of the batch")
        return
    firsts = [{name: batch[name][:1] for name in alone} for batch in batches]
    ways = {
        "beside two others": gap(subject, firsts[0], alone),
        "when the others change": gap(subject, firsts[1], firsts[0]),
    }
    leaks = {way: each for way, each in ways.items() if each.open}
    if not leaks:
        yield Passed(
            "batch-dependence", f"an entry alone and beside others: {max(ways.values(), key=lambda each: each.size)}"
        )
        return
    worst = max(leaks.values(), key=lambda each: each.size)
    content = "when the others change" in leaks
    yield Finding(
        check="batch-dependence",
        severity="fault",
        where=f"{worst.output} of entry 0",
        measured="; ".join(f"{way}, {each}" for way, each in leaks.items()),
        cause="statistics over the batch (batch norm, a norm over the wrong axis), a reshape that mixes axes "
        "0 and 1, or experts of limited "
        "capacity"
        if content
        else "the number of entries enters the result: a mean over the batch, or a shape that is read from axis 0",
        mend="normalise over features only; check every view and transpose where batch and heads meet",
        numbers={**worst.numbers(), "ways": list(leaks)},
    )


def _batch(subject: Subject, turn: int) -> Outputs:
    """The outputs of three entries: the one that was given, and two with other content of the same shape."""
    import torch

    made: dict[str, Any] = {}
    for name, part in subject.given.items():
        content = part.is_floating_point() or name in (subject.sequence, subject.mask and subject.mask.of)
        others = [subject.redrawn(part, turn + more) if content else part for more in (1, 2)]
        made[name] = torch.cat([part, *others])
    return subject.run(made)
