"""The check padding-leak: masked padding must not affect the outputs of real tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..difference import Difference, difference, positions
from ..finding import Finding, Passed, Result, Skipped
from ..subject import ADDED, ONE_TOKEN, Outputs, Subject

__all__ = ["padding_leak"]


def padding_leak(subject: Subject) -> Iterator[Result]:
    """Masked padding is added after the tokens and before them, then its content is replaced; the outputs of the real
    tokens must stay the same.

    A causal mask already hides padding after the tokens. Padding before them is tried with the position_ids that
    `generate` passes, and without; if the model takes no position_ids, it may shift the positions of the tokens, so
    only the content of the padding is compared.
    """
    if subject.mask is None:
        yield Skipped("padding-leak", "no input is known to be a padding mask; if the model takes one, pass it")
        return
    if not subject.can_change:
        yield Skipped("padding-leak", ONE_TOKEN)
        return
    same = subject.mask.of == subject.sequence
    expected = subject.rows(subject.outputs)
    if not expected:
        yield Skipped("padding-leak", "no output has a row for each position")
        return
    measured = {} if subject.can_be_padded else _within(subject)
    for side, left, right, more in _sides(subject, same) if subject.can_be_padded else ():
        real = slice(left, left + subject.length) if same else slice(None)
        padded = _real_outputs(subject, {**subject.padded(left, right), **more}, real)
        if f"the content of {side}" not in measured:
            others = [_real_outputs(subject, {**subject.padded(left, right, turn), **more}, real) for turn in (0, 10)]
            measured[f"the content of {side}"] = min(
                (difference(subject, other, padded) for other in others), key=lambda each: each.significant
            )
        if left and "position_ids" not in subject.parameters:
            continue
        between = difference(subject, padded, expected)
        if side not in measured or between.size < measured[side].size:
            measured[side] = between  # with or without position_ids, whichever the model is designed for
    leaks = {way: each for way, each in measured.items() if each.significant}
    if not leaks:
        yield Passed("padding-leak", f"{', '.join(measured)}: {max(measured.values(), key=lambda each: each.size)}")
        return
    content = [each for way, each in leaks.items() if way.startswith("the content")]
    worst = max(content or leaks.values(), key=lambda each: each.size)
    near = same and len(worst.rows) < subject.length // 2
    mask = subject.mask
    if content and near:
        cause = (
            f"{mask.name} reaches the attention, but other layers mix padding into neighboring positions: a "
            "convolution, or embeddings of neighbors"
        )
        fix = "set the vectors of padding to 0 before every layer, other than attention, that mixes positions"
    elif content:
        cause = f"{mask.name} does not reach the attention, or it is inverted"
        fix = f"pass {mask.name} to every layer, and check that {mask.real} means a real token"
    else:
        cause = (
            "the content of padding is masked, but its presence changes the result: positions that count padding, "
            "pooling or a mean over all positions, or a causal mask that is applied only if there is padding"
        )
        fix = "count positions over real tokens only, and exclude padding from every sum"
    yield Finding(
        check="padding-leak",
        severity="fault",
        where=positions(worst.rows),
        measured=(
            f"{ADDED if subject.can_be_padded else 2} padding positions, masked by {mask.name}: "
            f"{'; '.join(f'with {way}, {each}' for way, each in leaks.items())}"
        ),
        cause=cause,
        fix=fix,
        row=worst.rows[0] if worst.rows else None,
        numbers={**worst.numbers(), "ways": list(leaks)},
    )


def _real_outputs(subject: Subject, inputs: dict[str, Any], rows: slice) -> Outputs:
    """The outputs of the real tokens."""
    assert subject.sequence is not None
    length = inputs[subject.sequence].shape[1]
    return {name: part[:, rows] for name, part in subject.rows(subject.run(inputs), length).items()}


def _within(subject: Subject) -> dict[str, Difference]:
    """The effect of the content of positions that are masked as padding, where none can be added."""
    masked = subject.rows(subject.run(subject.padded_within()))
    others = [subject.rows(subject.run(subject.padded_within(turn))) for turn in (0, 10)]
    if subject.mask is not None and subject.mask.of == subject.sequence:
        length = subject.length
        real = [at for at in range(length) if at not in (length // 3, 2 * length // 3)]
        masked, *others = ({name: part[:, real] for name, part in each.items()} for each in (masked, *others))
    return {
        "the content of padding among the tokens": min(
            (difference(subject, other, masked) for other in others), key=lambda each: each.significant
        )
    }


def _sides(subject: Subject, same: bool) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """(name, positions before, positions after, more inputs); left padding with the position_ids that `generate`
    passes, and without.
    """
    import torch

    yield "right padding", 0, ADDED, {}
    if not same:
        return
    if "position_ids" in subject.parameters.difference(subject.inputs) and subject.sequence is not None:
        counted = torch.cat([torch.zeros(ADDED, dtype=torch.long), torch.arange(subject.length)])[None]
        yield "left padding", ADDED, 0, {"position_ids": counted.to(subject.inputs[subject.sequence].device)}
    yield "left padding", ADDED, 0, {}
