"""The check padding-leak: masked padding must not affect the outputs of real tokens."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

from ..difference import Difference, difference, largest, not_by_chance, passed, positions
from ..finding import Finding, NotApplicable, Passed, found
from ..subject import ADDED, ONE_TOKEN, Outputs, Subject

WITHIN = "padding among the tokens"
FEW = 4  # positions, of which two are masked, neither the first nor the last


def padding_leak(subject: Subject) -> Finding | Passed:
    """Masked padding is added after the tokens and before them, then its content is replaced; the outputs of the real
    tokens must stay the same.

    A causal mask already hides padding after the tokens. Padding before them is tried with the position_ids that
    `generate` passes, and without. If the model takes no position_ids and padding before the tokens moves its outputs,
    that is a warning for a causal model, because texts of several lengths are generated so. A model that returns one
    output for all tokens may support padding on one side only.
    """
    if subject.mask is None:
        raise NotApplicable("no input is known to be a padding mask; if the model takes one, pass it")
    results: list[Finding | Passed] = []
    reasons: list[NotApplicable] = []
    for for_all in (False, True):
        try:
            results.append(_result(subject, for_all))
        except NotApplicable as error:
            reasons.append(error)
    if not results:
        raise reasons[0]
    return next((each for each in results if isinstance(each, Finding)), results[0])


def _result(subject: Subject, for_all: bool) -> Finding | Passed:
    """The result for the outputs with a row for each position, or for those that are for all positions."""
    mask = subject.padding
    if not subject.can_change(mask.of):
        raise NotApplicable(ONE_TOKEN)
    if not subject.can_be_padded and subject.inputs[mask.of].shape[1] < FEW:
        raise NotApplicable(f"padding cannot be added, and fewer than {FEW} positions are too few to mask two")
    rows = subject.rows(subject.outputs)
    # Beside rows, transformers has vectors of a text that are taken from a token such as its last or largest one,
    # which random padding may contain: CLIP.
    if not (rows if not for_all else not (rows and subject.is_transformers) and subject.for_all(subject.outputs)):
        raise NotApplicable("no output has a row for each position, or is for all positions")
    if for_all:
        subject = _unpadded(subject)
    same = mask.of == subject.sequence
    expected = _real_outputs(subject, subject.inputs, slice(None), for_all)
    measured: dict[str, Difference] = {}
    moved: Difference | None = None  # by left padding, in a model that takes no position_ids
    broken: list[str] = []  # the sides on which padding makes outputs NaN
    for side, left, right, more in _sides(subject, same):
        real: slice | list[int] = slice(left, left + subject.length) if same else slice(None)
        if same and side == WITHIN:
            real = [at for at in range(subject.length) if at not in subject.within]
        padded = _real_outputs(subject, {**subject.padded(left, right), **more}, real, for_all)
        if f"the content of {side}" not in measured:
            others = [
                _real_outputs(subject, {**subject.padded(left, right, turn), **more}, real, for_all) for turn in (0, 10)
            ]
            measured[f"the content of {side}"] = not_by_chance(difference(subject, other, padded) for other in others)
        if side == WITHIN:  # masking the model's own positions changes the others rightly
            continue
        between = difference(subject, padded, expected)
        if any(bool(part.isnan().any()) for part in padded.values()) and side not in broken:
            broken.append(side)
        if left and "position_ids" not in subject.parameters:
            moved = between
            continue
        if side not in measured or between.size < measured[side].size:
            measured[side] = between  # with or without position_ids, whichever the model is designed for
    leaks = {way: each for way, each in measured.items() if each.significant}
    if not leaks and moved is not None and moved.significant and subject.causal and not for_all:
        return found(
            "padding-leak",
            "warning",
            positions(moved.rows),
            f"{ADDED} padding positions before the tokens, masked by {mask.name}: {moved}; what they contain "
            "changes nothing",
            f"positions count the padding: they are not derived from {mask.name}, and forward takes no position_ids",
            f"compute positions from {mask.name} (its cumulative sum − 1), or pad on the right only",
            row=moved.row,
        )
    if not leaks or (for_all and _one_side_is_clean(leaks, measured)):
        shown = {way: each for way, each in measured.items() if way not in leaks}
        ends = f"; with {', '.join(leaks)} it changes, which is right if it is taken from the position at that end"
        return passed("padding-leak", ", ".join(shown), shown.values(), ends if leaks else "")
    content = [each for way, each in leaks.items() if way.startswith("the content")]
    worst = largest(content or leaks.values())
    near = same and not for_all and len(worst.rows) < subject.length // 2
    if broken:
        cause = (
            f"rows that {mask.name} and the causal mask leave no key, such as those of {broken[0]}, are NaN after the "
            "softmax, and 0 · NaN carries it to the other rows"
        )
        fix = (
            f"add the smallest number of the dtype (torch.finfo(scores.dtype).min) where {mask.name} hides, instead of "
            "−inf, or set the weights of such rows to 0"
        )
    elif content and near:
        cause = (
            f"{mask.name} reaches the attention, but other layers mix padding into neighboring positions: a "
            "convolution, or embeddings of neighbors"
        )
        fix = "set the vectors of padding to 0 before every layer, other than attention, that mixes positions"
    elif content:
        cause = f"{mask.name} does not reach the attention{' or the pooling' * for_all}, or it is inverted"
        fix = f"pass {mask.name} to every layer and exclude padding from pooling; {mask.real} has to mean a real token"
    else:
        cause = (
            "the content of padding is masked, but its presence changes the result: positions that count padding, "
            "pooling or a mean over all positions, or a causal mask that is applied only if there is padding"
        )
        fix = "count positions over real tokens only, and exclude padding from every sum"
    return found(
        "padding-leak",
        "fault",
        worst.output if for_all else positions(worst.rows),
        f"{ADDED if subject.can_be_padded else 2} padding positions, masked by {mask.name}: "
        f"{'; '.join(f'with {way}, {each}' for way, each in leaks.items())}",
        cause,
        fix,
        row=None if for_all else worst.row,
        numbers=worst.numbers(ways=list(leaks)),
    )


def _real_outputs(subject: Subject, inputs: Mapping[str, Any], rows: slice | list[int], for_all: bool) -> Outputs:
    """The outputs of the real tokens, or those for all of them."""
    outputs = subject.run(inputs)
    if for_all:
        return subject.for_all(outputs)
    length = inputs[subject.sequence or ""].shape[1]
    return {name: part[:, rows] for name, part in subject.rows(outputs, length).items()}


def _unpadded(subject: Subject) -> Subject:
    """The subject without the padding of its own mask, which may be at an end where its output does not support it; as
    it is, where the model accepts one length only.
    """
    import torch

    bare = subject.without_padding
    if bare is subject or not subject.can_be_padded:
        return subject
    main = bare.inputs[subject.sequence or ""]
    masks = {
        mask.name: torch.full_like(subject.inputs[mask.name][:, : main.shape[1]], mask.real)
        for mask in subject.masks
        if mask.name in subject.inputs and mask.name not in bare.inputs
    }
    return replace(bare, inputs={**bare.inputs, **masks})


def _one_side_is_clean(leaks: Collection[str], measured: Collection[str]) -> bool:
    """Whether padding is without effect on one side. Models that take their output from the last or the first position
    support padding on the other side only.

    If only the content of padding was replaced on the clean side, content also has to leak on the other: a mean over
    all positions changes with masked padding on either side, but not with its content.
    """
    contents = {way for way in measured if way.startswith("the content of ")}
    clean = {way.removeprefix("the content of ") for way in contents - set(leaks)} - set(leaks)
    return any(side in measured or contents & set(leaks) for side in clean)


def _sides(subject: Subject, same: bool) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
    """(name, positions before, positions after, more inputs); left padding with the position_ids that `generate`
    passes, and without. Where none can be added, the model's own positions are masked.
    """
    import torch

    if not subject.can_be_padded:
        yield WITHIN, 0, 0, {}
        return
    yield "right padding", 0, ADDED, {}
    if not same or subject.ends:
        return
    if "position_ids" in subject.parameters.difference(subject.inputs) and subject.sequence is not None:
        counted = torch.cat([torch.zeros(ADDED, dtype=torch.long), torch.arange(subject.length)])[None]
        yield "left padding", ADDED, 0, {"position_ids": counted.to(subject.inputs[subject.sequence].device)}
    yield "left padding", ADDED, 0, {}
