"""The checks that compare runs of a model: training mode, determinism, finite numbers, and independence of the batch,
of later positions, and of padding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from ...common.errors import Refused
from ...lens import Call
from ...lens.look import look
from ..evidence import script, written
from ..finding import (
    Difference,
    Finding,
    NotApplicable,
    Passed,
    difference,
    found,
    largest,
    listed,
    not_by_chance,
    passed,
    positions,
)
from ..run_checks.audited_run import rows_to_read
from ..subject import ADDED, ONE_TOKEN, Outputs, Raised, Subject, flags, floats, positions_first

NORMS = ("BatchNorm", "SyncBatchNorm")


def training(subject: Subject) -> Finding | Passed:
    """No module was in training mode before the audit switched the model to evaluation mode.

    Cannot see dropout that ignores the mode: `determinism` does.
    """
    modes = subject.training
    if not modes:
        return Passed("training-mode", "no module is in training mode")
    drops = [name for name, module in modes.items() if isinstance(getattr(module, "p", None), float) and module.p > 0]
    norms = [name for name, module in modes.items() if any(word in type(module).__name__ for word in NORMS)]
    return found(
        "training-mode",
        "fault" if drops or norms else "note",
        next(iter([*drops, *norms, *modes])) or "the model",
        f"{len(modes)} modules are in training mode, {len(drops)} with dropout and {len(norms)} with batch statistics",
        "model.eval() was not called, or model.train() was called after it",
        "call model.eval()",
    )


def determinism(subject: Subject) -> Finding | Passed:
    """Two runs with the same inputs and different random seeds differ by no more than rounding.

    Finds dropout without `training=`, noise, random keys. Cannot see random numbers with a seed of the model's own.
    """
    between = difference(subject, subject.run(subject.inputs, seed=1), subject.run(subject.inputs, seed=2))
    if not between.significant:
        return passed("determinism", "two runs with the same inputs", [between])
    return found(
        "determinism",
        "fault",
        between.output,
        f"between two runs with the same inputs, {between}",
        "random numbers in evaluation mode: torch.nn.functional.dropout without "
        "training=self.training, noise, or random keys",
        "pass training=self.training to dropout; draw random numbers in training mode only",
        numbers=between.numbers(),
    )


def finite(subject: Subject) -> Finding | Passed:
    """Every output is finite; otherwise the first function that returns NaN or infinity is reported, with its layer.

    Cannot see other inputs, and inside a function that is not one of torch.
    """
    import torch

    from ...observe.tracing import trace

    outputs = dict(floats(subject.call(subject.inputs)))  # those of padding included: NaN there spreads in training
    broken = {name: at for name, part in outputs.items() if len(at := (~torch.isfinite(part)).nonzero())}
    if not broken:
        return Passed("finite", f"every value of {', '.join(outputs)} is finite")
    name, at = next(iter(broken.items()))
    part, first, count = outputs[name], at[0].tolist(), len(at)
    positional, keywords = subject.arguments(subject.inputs)
    source = trace(subject.model, positional or keywords).first("number")
    return found(
        "finite",
        "fault",
        f"{name}, first at index {first}",
        f"{count:,} of {part.numel():,} values are NaN or infinite (threshold: 0)",
        f"the first of them: {source}" if source else "a function that is not one of torch returns them",
        "check that place for a division by 0, a fully masked row, or scores beyond the range of the dtype "
        f"({str(part.dtype).removeprefix('torch.')}), and weights: torch.isfinite(parameter).all()",
    )


def batch_dependence(subject: Subject) -> Finding | Passed:
    """The outputs of an entry are the same alone, in a batch with two others, and with two different others, with
    padding in these if a padding mask is given.

    Finds batch statistics, mixed axes, routing with limited capacity, masks of another entry. Cannot see mistakes that
    need more than three entries or other lengths.
    """
    if not all(part.ndim and part.shape[0] == 1 for part in subject.inputs.values()):
        raise NotApplicable("not every input has a batch axis of size 1")
    if not subject.can_change(subject.sequence):
        raise NotApplicable(ONE_TOKEN)
    batches = [subject.run(batched(subject, turn)) for turn in (0, 10)]
    alone = {
        name: part
        for name, part in subject.outputs.items()
        if part.ndim and name in batches[0] and batches[0][name].shape == (3, *part.shape[1:])
    }
    if not alone:
        raise NotApplicable("no output has a batch axis")
    own = [{name: batch[name][1:2] for name in alone} for batch in batches]
    ways = {
        "in a batch with two others": difference(subject, own[0], alone),
        "when the others change": difference(subject, own[1], own[0]),
    }
    leaks = {way: each for way, each in ways.items() if each.significant}
    if not leaks:
        return passed("batch-dependence", "one entry alone and in a batch", ways.values())
    worst = largest(leaks.values())
    cause = "the result depends on the batch size: a mean over the batch, or code that takes a length from axis 0"
    fix = "normalize over features only; check every view and transpose that involves the batch and head axes"
    if "when the others change" in leaks:
        cause = (
            "statistics over the batch (batch norm, or a norm over the wrong axis), a reshape that mixes axes 0 and 1, "
            "mixture-of-experts routing with limited capacity, or a padding mask that is taken from another entry or "
            "repeated over the heads in the wrong order"
        )
        if positions_first(subject.model):
            first = "a torch layer with batch_first=False that reads (batch, positions, …) as (positions, batch, …)"
            cause = f"{first}; {cause}"
            fix = f"create torch's layers with batch_first=True, or transpose their input and output; {fix}"
    return found(
        "batch-dependence",
        "fault",
        f"{worst.output} of one entry",
        "; ".join(f"{way}, {each}" for way, each in leaks.items()),
        cause,
        fix,
        numbers=worst.numbers(ways=list(leaks)),
        confidence="possible",
        evidence=script(
            subject,
            worst.output,
            "batch = {name: torch.cat([part, part.roll(1, -1)]) for name, part in inputs.items()}",
            "print((run(batch)[:1] - run(inputs)).abs().max())  # 0, or rounding, where entries do not mix",
        ),
    )


def batched(subject: Subject, turn: int = 0) -> dict[str, Any]:
    """The inputs with three entries: the given one between two with random values of the same shape. In later turns the
    padding mask, if it is given, hides two positions of the others.
    """
    import torch

    made: dict[str, Any] = {}
    for name, part in subject.inputs.items():
        content = part.is_floating_point() or name in (subject.sequence, subject.mask and subject.mask.of)
        masks = name in subject.padding_values
        others = [subject.redrawn(part, turn + more) if content and not masks else part.clone() for more in (1, 2)]
        for other in others if turn and masks and name == subject.padding.name else ():
            other[:, subject.within] = subject.padding_values[name]
        made[name] = torch.cat([others[0], part, others[1]])
    return made


def missing_softmax(subject: Subject) -> Finding | Passed:
    """Values are multiplied with q·k of two projections, which was scaled and masked, without a softmax, or with a
    sigmoid, tanh, ReLU or softplus in its place.

    Linear attention has a function of q and k or of their products, such as a decay, and is not reported. Cannot see
    other functions, nor q and k that are not products with weights of the model.
    """
    from ..run_checks.sources import read_sources  # loads torch

    if not hasattr(subject.model, "named_parameters"):
        raise NotApplicable("functions have no weights, of which q and k are products")
    try:
        unweighted = dict(read_sources(subject).unweighted)
    except Raised as error:
        raise NotApplicable(f"the products of the model cannot be followed: {error}") from None
    if not unweighted:
        return Passed("missing-softmax", "no product q·k is multiplied with values without a softmax (threshold: 0)")
    other = next(filter(None, unweighted.values()), "")
    cause = f"{other} takes the place of the softmax: the weights of a row have no fixed sum"
    between = f"after {other}" if other else "scaled or masked at most"
    return found(
        "missing-softmax",
        "fault" if "softmax" in str(subject.model).lower() else "warning",
        f"layers {listed(unweighted)}",
        f"q·k of two projections is multiplied with the values, {between} (threshold: a softmax between)",
        cause if other else "the softmax is left out: the scores are used as weights",
        "pass the scores to softmax(-1) before the product with the values; no fix is needed where this is "
        f"meant, as in {other or 'linear'} attention",
    )


def recorded(subject: Subject, inputs: Mapping[str, Any]) -> Sequence[Call]:
    """The attention calls of one run; none where none can be recorded."""
    _, named = replace(subject, ordered=()).arguments(inputs)
    try:
        return look(subject.model, inputs=named, values=True).calls
    except Refused:
        return ()


class Cause(NamedTuple):
    """What is wrong, in words, and what to do about it."""

    words: str
    fix: str


PROBES = 6


def future_leak(subject: Subject) -> Finding | Passed:
    """For several positions t, all tokens from t on are replaced; every output before t must stay the same.

    This is repeated without a mask, with padding after the tokens, and during cache prefill, because models build a
    different mask in each case. Finds causal masks that are missing, inverted, off by one or missing in one of the
    cases, and views that mix positions. Cannot see masks that hide too much, nor models that nothing declares causal.
    """
    if subject.sequence is None or subject.length < 2:
        raise NotApplicable("no input is a sequence of at least two positions")
    if not subject.causal:
        raise NotApplicable(f"not declared causal: {subject.causal_source}")
    if not subject.can_change(subject.sequence):
        raise NotApplicable(ONE_TOKEN)
    if not subject.rows(subject.outputs):
        raise NotApplicable("no output has a row for each position")
    ways = subject.unmasked
    if subject.mask is not None and subject.mask.of == subject.sequence and subject.can_be_padded:
        ways["with padding"] = subject.padded(right=ADDED)
    if subject.cache:
        ways["during cache prefill"] = {**subject.without_mask(), "use_cache": True}
    measured = {way: probe(subject, inputs) for way, inputs in ways.items()}
    leaks = {way: [(t, each) for t, each in probes if each.significant] for way, probes in measured.items()}
    if not any(leaks.values()):
        return passed(
            "future-leak",
            f"outputs before t = {listed([t for t, _ in next(iter(measured.values()))])} do not depend on later tokens",
            (each for probes in measured.values() for _, each in probes),
        )
    way, (t, worst) = max(
        ((way, each) for way, probes in leaks.items() for each in probes), key=lambda each: each[1][1].size
    )
    reach = max(t - min(each.rows) for probes in leaks.values() for t, each in probes)
    leaking = [way for way in leaks if leaks[way]]
    cause, fix = _reason(subject, leaking, [way for way in ways if way not in leaking], reach)
    name, sequence = subject.sequence, subject.inputs[subject.sequence]
    shown = script(
        replace(subject, inputs=ways[way]),
        worst.output,
        f"other = {written(subject.redrawn(sequence[:, t:]))}",
        f"changed = {{**inputs, {name!r}: torch.cat([inputs[{name!r}][:, :{t}], other], 1)}}",
        f"print((run(changed) - run(inputs))[:, :{t}].abs().max())  # 0 where no token depends on later ones",
    )
    return found(
        "future-leak",
        "fault",
        f"{positions(worst.rows)}, which should not depend on tokens from position {t} on, {' and '.join(leaking)}",
        f"with tokens {t} to {subject.length - 1} replaced, {worst} before position {t}; "
        f"{len(leaks[way])} of {len(measured[way])} probed positions leak, from up to {reach} "
        f"position{'s' * (reach != 1)} ahead; declared causal by {subject.causal_source}",
        cause,
        fix,
        row=max(worst.rows),
        evidence=shown if way in subject.unmasked else "",
        numbers=worst.numbers(changed_from=t, reach=reach, ways=leaking),
    )


def probe(subject: Subject, inputs: Mapping[str, Any]) -> list[tuple[int, Difference]]:
    """(t, difference of the outputs before t) for each probed position t. A difference is significant only if two
    different replacements of the tokens cause it.
    """
    assert subject.sequence is not None
    import torch

    n, sequence = subject.length, inputs[subject.sequence]
    reference = subject.rows(subject.run(inputs), sequence.shape[1])
    probes = []
    for t in sorted({max(1, round(n * part / PROBES)) for part in range(PROBES)} | {n - 1}):
        both = []
        for turn in range(2):
            other = torch.cat([sequence[:, :t], subject.redrawn(sequence[:, t:n], turn, sequence), sequence[:, n:]], 1)
            changed = subject.rows(subject.run({**inputs, subject.sequence: other}), sequence.shape[1])
            both.append(
                difference(
                    subject,
                    {name: part[:, :t] for name, part in changed.items()},
                    {name: part[:, :t] for name, part in reference.items()},
                )
            )
            if not both[-1].significant:
                break
        probes.append((t, not_by_chance(both)))
    return probes


def _reason(subject: Subject, leaking: list[str], tight: list[str], reach: int) -> tuple[str, str]:
    """(likely cause, fix) of a leak from up to `reach` positions ahead."""
    if flags(getattr(subject.model, "decoder", subject.model), "is_decoder") == {False}:
        return (
            "the configuration of the decoder has is_decoder=False, so it attends in both directions",
            "set config.is_decoder = True before the model is created",
        )
    layers = getattr(subject.model.config.get_text_config(), "num_hidden_layers", 1) if subject.is_transformers else 1
    if reach <= layers < subject.length // 2:
        return (
            "the causal mask is off by one in at least one layer: key ≤ query + 1 instead of key ≤ query",
            "let row i attend to key j only if j ≤ i; shift the labels, not the inputs",
        )
    if tight:
        return (
            (
                f"the causal mask is missing {' and '.join(leaking)}, but present {' and '.join(tight)}: one of the "
                "code paths that build the mask omits it"
            ),
            "build the causal mask in every case; until then try another attn_implementation, and audit again",
        )
    return (
        "attention without a causal mask, an inverted mask, or a view or norm that mixes positions",
        "mask the keys after the query in every layer, and check every view that involves the position and head axes",
    )


WITHIN = "padding among the tokens"
FEW = 4  # positions, of which two are masked, neither the first nor the last


def padding_leak(subject: Subject) -> Finding | Passed:
    """Masked padding is added after the tokens and before them, then its content is replaced; the outputs of the real
    tokens must stay the same. So for each padding mask. The first attention call that gives weight to padding says why.

    A causal mask already hides padding after the tokens. Padding before them is tried with the position_ids that
    `generate` passes, and without. If the model takes no position_ids and padding before the tokens moves its outputs,
    that is a warning for a causal model, because texts of several lengths are generated so. A model that returns one
    output for all tokens may support padding on one side only. Cannot see what happens at padded positions: what a
    model returns there is undefined. Of a mask that is not given and not named as usual nothing is known.
    """
    if subject.mask is None:
        raise NotApplicable("no input is known to be a padding mask; if the model takes one, pass it")
    results: list[Finding | Passed] = []
    reasons: list[NotApplicable] = []
    judged = [subject.padding] if subject.is_transformers else subject.masks  # a decoder of transformers is not padded
    for mask, for_all in product(judged, (False, True)):
        others = tuple(each for each in subject.masks if each is not mask)
        of_mask = replace(subject, mask=mask, further_masks=others)
        vars(of_mask).update(outputs=subject.outputs, rounding=subject.rounding)  # they do not depend on which is first
        try:
            results.append(_result(of_mask if len(judged) > 1 else subject, for_all))
        except NotApplicable as error:
            reasons.append(error)
    if not results:
        raise reasons[0]
    measured = "; ".join(dict.fromkeys(each.measured for each in results))
    return next((each for each in results if isinstance(each, Finding)), Passed("padding-leak", measured))


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
    contents: dict[str, list[Mapping[str, Any]]] = {}  # the inputs with other contents of padding
    for side, left, right, more in _sides(subject, same):
        real: slice | list[int] = slice(left, left + subject.length) if same else slice(None)
        if same and side == WITHIN:
            real = [at for at in range(subject.length) if at not in subject.within]
        padded = _real_outputs(subject, {**subject.padded(left, right), **more}, real, for_all)
        way = f"the content of {side}"
        if way not in measured:
            contents[way] = [{**subject.padded(left, right, turn), **more} for turn in (0, 10)]
            others = [_real_outputs(subject, inputs, real, for_all) for inputs in contents[way]]
            measured[way] = not_by_chance(difference(subject, other, padded) for other in others)
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
    if not leaks and not broken and (short := _hides_the_last(subject)):
        return found(
            "padding-leak",
            "warning",
            f"{short}, the last real token",
            f"before the padding that {mask.name} marks, no row gives the last token a weight above {NEGLIGIBLE:g} "
            "(threshold), but rows do give some to the token before it",
            f"{mask.name} hides one real token too many: lengths, or the numbers of positions, are off by one",
            f"let {mask.name} hide padding only: position < length",
        )
    if not leaks or (for_all and _one_side_is_clean(leaks, measured)):
        shown = {way: each for way, each in measured.items() if way not in leaks}
        ends = f"; with {', '.join(leaks)} it changes, which is right if it is taken from the position at that end"
        return passed("padding-leak", ", ".join(shown), shown.values(), ends if leaks else "")
    content = [way for way in leaks if way in contents]
    way = max(content or leaks, key=lambda way: leaks[way].size)
    worst, call = leaks[way], ""
    if way.endswith(WITHIN) and same and not for_all:
        real = [at for at in range(subject.length) if at not in subject.within]
        worst = replace(worst, rows=tuple(real[row] for row in worst.rows))
    hidden, other = f"inputs[{mask.of!r}]", subject.redrawn(subject.inputs[mask.of][:, :2])
    evidence = script(
        subject,
        worst.output,
        f"mask = torch.full({hidden}.shape[:2], {mask.real!r}, dtype={subject.with_masks()[mask.name].dtype})",
        f"mask[:, :2] = {mask.padding!r}",
        f"other = torch.cat([{written(other)}, {hidden}[:, 2:]], 1)",
        f"one, two = ({{**inputs, {mask.name!r}: mask, {mask.of!r}: each}} for each in ({hidden}, other))",
        f"print((run(two) - run(one)){'[:, 2:]' * (same and not for_all)}.abs().max())  # 0 where padding is ignored",
    )
    if broken:
        cause = Cause(
            f"rows that {mask.name} and the causal mask leave no key, such as those of {broken[0]}, are NaN after the "
            "softmax, and 0 · NaN carries it to the other rows",
            f"add the smallest number of the dtype (torch.finfo(scores.dtype).min) where {mask.name} hides, instead of "
            "−inf, or set the weights of such rows to 0",
        )
    elif content:
        call, cause = _unhidden(subject, contents[way]) or (
            "",
            Cause(
                f"{mask.name} does not reach the attention{' or the pooling' * for_all}, or it is inverted",
                f"pass {mask.name} to every layer and exclude padding from pooling; {mask.real} has to mean a real "
                "token",
            ),
        )
    else:
        cause = Cause(
            "the content of padding is masked, but its presence changes the result: positions that count padding, "
            "statistics of the batch, pooling or a mean over all positions, or a causal mask that is applied only if "
            "there is padding",
            "count positions over real tokens only, and exclude padding from every sum",
        )
    return found(
        "padding-leak",
        "fault",
        f"{call}{', ' * bool(call)}{worst.output if for_all else positions(worst.rows)}",
        f"{ADDED if subject.can_be_padded else 2} padding positions, masked by {mask.name}: "
        f"{'; '.join(f'with {way}, {each}' for way, each in leaks.items())}",
        *cause,
        row=None if for_all else worst.row,
        numbers=worst.numbers(ways=list(leaks)),
        evidence=evidence if content else "",
    )


NEGLIGIBLE = 1e-6  # a weight, such as that of a score of −10⁴
WEAK = 0.1  # times the mean weight of other keys


def _unhidden(subject: Subject, contents: Sequence[Mapping[str, Any]]) -> tuple[str, Cause] | None:
    """(the first attention call that gives weight to masked padding, why it may) for two contents of it; ("", why) if
    every call hides it; None if no call is recorded over these positions.
    """
    mask, answer = subject.padding, None
    hidden = np.asarray((contents[0][mask.name][0] == mask.padding).cpu())
    for one, other in zip(*(recorded(subject, inputs) for inputs in contents), strict=False):
        if one.shape != other.shape or one.shape[2] != len(hidden):
            continue
        rows = rows_to_read(one)
        rows = rows[~hidden[rows]] if one.shape[1] == len(hidden) else rows
        first, second = (np.nan_to_num(call.weights(rows)) for call in (one, other))
        on, off, real = first[..., hidden], second[..., hidden], first[..., ~hidden]
        layer = f"{mask.name} in {one.name}"
        if on.max(initial=0) > NEGLIGIBLE:
            if real.max(initial=0) <= NEGLIGIBLE:
                words = f"{layer} is inverted: it hides the real tokens"
            elif np.allclose(on, off, rtol=WEAK) or on.mean() < WEAK * real.mean():
                words = f"{layer} does not hide padding: where it masks, the number is not negative enough, such as 0"
            else:
                words = f"{mask.name} does not reach the attention of {one.name}, or only some of its rows and heads"
            return one.name, Cause(words, f"add −inf, or the smallest number of the dtype, where {mask.name} hides")
        if one.given is not None and real.sum(-1).min(initial=1) < 1 - WEAK:
            words = f"{layer} is applied after the softmax: the weights of the real tokens do not sum to 1"
            return one.name, Cause(words, "mask the scores before the softmax")
        answer = Cause(
            f"{mask.name} reaches the attention, but other layers mix padding into neighboring positions: a "
            "convolution, embeddings of neighbors, or pooling",
            "set the vectors of padding to 0 before every layer, other than attention, that mixes positions",
        )
    return answer and ("", answer)


def _hides_the_last(subject: Subject) -> str | None:
    """The attention call in which padding hides the last token before it, but no other one: rows before both attend to
    the second to last, as in a causal model none does.
    """
    inputs, length = subject.padded(right=ADDED), subject.inputs[subject.padding.of].shape[1]
    given = inputs[subject.padding.name][:, :length]
    if not subject.can_be_padded or (given == subject.padding.padding).any():  # then another token is the last
        return None
    for own, call in zip(recorded(subject, subject.inputs), recorded(subject, inputs), strict=False):
        if (own.shape[2], call.shape[2]) == (length, length + ADDED):  # keys of other inputs do not get more
            rows = rows_to_read(call)
            rows = rows[rows < length - 2] if call.shape[1] == length + ADDED else rows
            last, before = (call.weights(rows)[..., at].max(initial=0) for at in (length - 1, length - 2))
            if last <= NEGLIGIBLE < before:
                return call.name
    return None


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
    if same and subject.further_masks:  # a decoder beside an encoder is padded after its tokens, which it never sees
        yield WITHIN, 0, 0, {}
    if not same or subject.ends or subject.further_masks:
        return
    if "position_ids" in subject.parameters.difference(subject.inputs) and subject.sequence is not None:
        counted = torch.cat([torch.zeros(ADDED, dtype=torch.long), torch.arange(subject.length)])[None]
        yield "left padding", ADDED, 0, {"position_ids": counted.to(subject.inputs[subject.sequence].device)}
    yield "left padding", ADDED, 0, {}
