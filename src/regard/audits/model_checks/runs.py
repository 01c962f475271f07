"""The checks of a model's own runs: training mode, determinism, finite numbers, and independence of the batch."""

from __future__ import annotations

from typing import Any

from ..difference import difference, largest, passed
from ..finding import Finding, NotApplicable, Passed, found
from ..subject import ONE_TOKEN, Subject, floats, modules_of, positions_first

NORMS = ("BatchNorm", "SyncBatchNorm")


def training(subject: Subject) -> Finding | Passed:
    """No module was in training mode before the audit switched the model to evaluation mode."""
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
    """Two runs with the same inputs and different random seeds differ by no more than rounding."""
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
    """Every output is finite; otherwise the first module with finite inputs and a non-finite output is reported."""
    import torch

    outputs = dict(floats(subject.call(subject.inputs)))  # those of padding included: NaN there spreads in training
    broken = {name: at for name, part in outputs.items() if len(at := (~torch.isfinite(part)).nonzero())}
    if not broken:
        return Passed("finite", f"every value of {', '.join(outputs)} is finite")
    name, at = next(iter(broken.items()))
    part, first, count = outputs[name], at[0].tolist(), len(at)
    source = _source(subject)
    return found(
        "finite",
        "fault",
        f"{name}, first at index {first}",
        f"{count:,} of {part.numel():,} values are NaN or infinite (threshold: 0)",
        f"{source} is the first module with finite inputs and a non-finite output"
        if source
        else "no module turns finite inputs into non-finite outputs: a weight or an input is not finite",
        "check that module for a division by 0, a fully masked row, or scores beyond the range of the dtype "
        f"({str(part.dtype).removeprefix('torch.')})"
        if source
        else "check weights and inputs: torch.isfinite(parameter).all()",
    )


def _source(subject: Subject) -> str | None:
    """The innermost module that returns NaN or infinity although its inputs and weights are finite."""
    import torch

    sources: list[str] = []
    names = {id(module): name for name, module in getattr(subject.model, "named_modules", list)()}

    def observe(module, args, kwargs, output):
        finite_inputs = all(
            bool(torch.isfinite(part).all())
            for values in (args, kwargs, dict(module.named_parameters()))
            for _, part in floats(values)
        )
        if finite_inputs and not all(bool(torch.isfinite(part).all()) for _, part in floats(output)):
            sources.append(f"{names[id(module)] or 'the model'} ({type(module).__name__})")

    hooks = [module.register_forward_hook(observe, with_kwargs=True) for module in modules_of(subject.model)]
    try:
        subject.run(subject.inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return sources[0] if sources else None


def batch_dependence(subject: Subject) -> Finding | Passed:
    """The outputs of an entry are the same alone, in a batch with two others, and with two different others."""
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
    if "when the others change" in leaks and positions_first(subject.model):
        cause = (
            f"a torch layer with batch_first=False that reads (batch, positions, …) as (positions, batch, …); {cause}"
        )
        fix = f"create torch's layers with batch_first=True, or transpose their input and output; {fix}"
    return found(
        "batch-dependence",
        "fault",
        f"{worst.output} of one entry",
        "; ".join(f"{way}, {each}" for way, each in leaks.items()),
        cause,
        fix,
        numbers=worst.numbers(ways=list(leaks)),
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
