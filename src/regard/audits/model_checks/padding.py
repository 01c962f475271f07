"""Whether padding shows: with the mask given, neither its presence nor its content may matter to real tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..difference import Gap, gap, placed
from ..finding import Finding, Passed, Result, Skipped
from ..subject import Outputs, Subject

__all__ = ["padding_leak"]

COUNT = 5


def padding_leak(subject: Subject) -> Iterator[Result]:
    """Padding is put behind the tokens and before them, then its content changes: outputs of real tokens stay as they
    are.

    Causality hides what stands behind. Left padding comes with position ids, as generation gives them, or without;
    where a model cannot be told positions, padding may move its tokens, and only the content counts.
    """
    if subject.mask is None:
        yield Skipped("padding-leak", "no input is known that tells padding from tokens")
        return
    same = subject.mask.of == subject.sequence
    wanted = subject.rows(subject.outputs)
    if not wanted:
        yield Skipped("padding-leak", "no output has a row for each position")
        return
    found: dict[str, Gap] = {}
    for side, left, right, more in _sides(subject, same):
        cut = slice(left, left + subject.length) if same else slice(None)
        plain = _cut(subject, {**subject.lengthened(left, right), **more}, cut)
        if f"the content of {side}" not in found:
            others = [_cut(subject, {**subject.lengthened(left, right, turn), **more}, cut) for turn in (0, 10)]
            found[f"the content of {side}"] = min(
                (gap(subject, other, plain) for other in others), key=lambda each: each.open
            )
        if left and "position_ids" not in subject.takes:
            continue
        between = gap(subject, plain, wanted)
        if side not in found or between.size < found[side].size:
            found[side] = between  # of two ways to tell positions, the one that the model is made for
    leaks = {way: each for way, each in found.items() if each.open}
    if not leaks:
        yield Passed("padding-leak", f"{', '.join(found)}: {max(found.values(), key=lambda each: each.size)}")
        return
    content = [each for way, each in leaks.items() if way.startswith("the content")]
    worst = max(content or leaks.values(), key=lambda each: each.size)
    near = same and len(worst.rows) < subject.length // 2
    mask = subject.mask
    if content and near:
        cause = (
            f"{mask.name} reaches the attention; what feels padding is its neighbours: a convolution, or "
            "embeddings of neighbours"
        )
        mend = "set the vectors of padding to 0 before anything but attention mixes positions"
    elif content:
        cause = f"{mask.name} does not reach the attention, or its sense is inverted"
        mend = f"hand {mask.name} on to every layer, and check that {mask.seen} means seen"
    else:
        cause = (
            "padding is masked, but its presence is felt: positions that count it, pooling or a mean over "
            "all positions, or a "
            "rule (causality) that is lost where there is no padding to mask"
        )
        mend = "count positions over real tokens only, and leave padding out of every sum"
    yield Finding(
        check="padding-leak",
        severity="fault",
        where=placed(worst.rows),
        measured=(
            f"{COUNT} positions that {mask.name} rules out: "
            f"{'; '.join(f'with {way}, {each}' for way, each in leaks.items())}"
        ),
        cause=cause,
        mend=mend,
        row=worst.rows[0] if worst.rows else None,
        numbers={**worst.numbers(), "ways": list(leaks)},
    )


def _cut(subject: Subject, given: dict[str, Any], rows: slice) -> Outputs:
    """The outputs of the real tokens."""
    assert subject.sequence is not None
    length = given[subject.sequence].shape[1]
    return {name: part[:, rows] for name, part in subject.rows(subject.run(given), length).items()}


def _sides(subject: Subject, same: bool) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """(name, positions before, positions behind, more inputs); left padding with positions as generation tells them, or
    without.
    """
    import torch

    yield "right padding", 0, COUNT, {}
    if not same:
        return
    if "position_ids" in subject.takes and subject.sequence is not None:
        counted = torch.cat([torch.zeros(COUNT, dtype=torch.long), torch.arange(subject.length)])[None]
        yield "left padding", COUNT, 0, {"position_ids": counted.to(subject.given[subject.sequence].device)}
    yield "left padding", COUNT, 0, {}
