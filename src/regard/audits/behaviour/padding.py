"""Whether padding shows: with the mask given, neither its presence nor its content may matter to real tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..finding import Finding, Passed, Result, Skipped
from ..gap import Gap, gap
from ..subject import Outputs, Subject

__all__ = ["padding_leak"]

COUNT = 5


def padding_leak(subject: Subject) -> Iterator[Result]:
    """Padding is put behind the tokens, and before them where the model writes or is told positions; then its content changes.

    Outputs of real tokens stay as they are without it. Left padding comes with position ids, as generation gives them.
    """
    if subject.mask is None:
        yield Skipped("padding-leak", "no input is known that tells padding from tokens")
        return
    same = subject.mask.of == subject.sequence
    wanted = subject.rows(subject.outputs)
    if not wanted:
        yield Skipped("padding-leak", "no output has a row for each position")
        return
    sides = {"right": (0, COUNT)}
    if same and "position_ids" in subject.takes:
        sides["left"] = (COUNT, 0)
    found: dict[str, Gap] = {}
    for side, (left, right) in sides.items():
        more = _positions(subject, left) if left else {}
        cut = slice(left, left + subject.length) if same else slice(None)
        plain = _cut(subject, {**subject.lengthened(left, right), **more}, cut)
        found[f"{side} padding"] = gap(subject, plain, wanted)
        others = [
            gap(subject, _cut(subject, {**subject.lengthened(left, right, turn), **more}, cut), plain) for turn in (0, 10)
        ]
        found[f"the content of {side} padding"] = min(others, key=lambda each: each.open)
    leaks = {way: each for way, each in found.items() if each.open}
    if not leaks:
        yield Passed("padding-leak", f"{', '.join(found)}: {max(found.values(), key=lambda each: each.size)}")
        return
    way, worst = next(((way, each) for way, each in leaks.items() if way.startswith("the content")), next(iter(leaks.items())))
    content = way.startswith("the content")
    yield Finding(
        "padding-leak", "fault", f"positions {', '.join(map(str, worst.rows[:8]))}{', …' * (len(worst.rows) > 8)}",
        f"{COUNT} positions that {subject.mask.name} rules out: {'; '.join(f'with {way}, {each}' for way, each in leaks.items())}",
        f"{subject.mask.name} does not reach the attention, or its sense is inverted" if content else
        "padding is masked, but something else feels it: positions counted from the first token of padding, a mean over all positions, "
        "or a convolution",
        f"hand {subject.mask.name} on to every layer, and check that {subject.mask.seen} means seen" if content else
        "count positions over real tokens only, and leave padding out of every sum",
        row=worst.rows[0] if worst.rows else None, numbers={**worst.numbers(), "ways": list(leaks)},
    )  # fmt: skip


def _cut(subject: Subject, given: dict[str, Any], rows: slice) -> Outputs:
    """The outputs of the real tokens."""
    length = given[subject.sequence].shape[1]
    return {name: part[:, rows] for name, part in subject.rows(subject.run(given), length).items()}


def _positions(subject: Subject, left: int) -> dict[str, Any]:
    import torch

    device = subject.given[subject.sequence].device
    return {"position_ids": torch.cat([torch.zeros(left, dtype=torch.long), torch.arange(subject.length)])[None].to(device)}
