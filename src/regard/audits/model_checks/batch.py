"""The check batch-dependence: batch entries must not affect each other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..difference import difference
from ..finding import Finding, Passed, Result, Skipped
from ..subject import ONE_TOKEN, Outputs, Subject, positions_first


def batch_dependence(subject: Subject) -> Iterator[Result]:
    """The outputs of an entry are the same alone, in a batch with two others, and with two different others."""
    if not all(part.ndim and part.shape[0] == 1 for part in subject.inputs.values()):
        yield Skipped("batch-dependence", "not every input has a batch axis of size 1")
        return
    if not subject.can_change(subject.sequence):
        yield Skipped("batch-dependence", ONE_TOKEN)
        return
    batches = [_batch(subject, turn) for turn in (0, 10)]
    alone = {
        name: part
        for name, part in subject.outputs.items()
        if part.ndim and name in batches[0] and batches[0][name].shape == (3, *part.shape[1:])
    }
    if not alone:
        yield Skipped("batch-dependence", "no output has a batch axis")
        return
    firsts = [{name: batch[name][:1] for name in alone} for batch in batches]
    ways = {
        "in a batch with two others": difference(subject, firsts[0], alone),
        "when the others change": difference(subject, firsts[1], firsts[0]),
    }
    leaks = {way: each for way, each in ways.items() if each.significant}
    if not leaks:
        yield Passed(
            "batch-dependence", f"one entry alone and in a batch: {max(ways.values(), key=lambda each: each.size)}"
        )
        return
    worst = max(leaks.values(), key=lambda each: each.size)
    cause = "the result depends on the batch size: a mean over the batch, or code that takes a length from axis 0"
    fix = "normalize over features only; check every view and transpose that involves the batch and head axes"
    if "when the others change" in leaks:
        cause = (
            "statistics over the batch (batch norm, or a norm over the wrong axis), a reshape that mixes axes 0 and 1, "
            "or mixture-of-experts routing with limited capacity"
        )
    if "when the others change" in leaks and positions_first(subject.model):
        cause = (
            f"a torch layer with batch_first=False that reads (batch, positions, …) as (positions, batch, …); {cause}"
        )
        fix = f"create torch's layers with batch_first=True, or transpose their input and output; {fix}"
    yield Finding(
        check="batch-dependence",
        severity="fault",
        where=f"{worst.output} of entry 0",
        measured="; ".join(f"{way}, {each}" for way, each in leaks.items()),
        cause=cause,
        fix=fix,
        numbers={**worst.numbers(), "ways": list(leaks)},
    )


def _batch(subject: Subject, turn: int) -> Outputs:
    """The outputs for three entries: the given one, and two with random values of the same shape."""
    import torch

    made: dict[str, Any] = {}
    for name, part in subject.inputs.items():
        content = part.is_floating_point() or name in (subject.sequence, subject.mask and subject.mask.of)
        others = [subject.redrawn(part, turn + more) if content else part for more in (1, 2)]
        made[name] = torch.cat([part, *others])
    return subject.run(made)
