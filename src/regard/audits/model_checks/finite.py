"""The check finite: the outputs contain neither NaN nor infinity."""

from __future__ import annotations

from collections.abc import Iterator

from ..finding import Finding, Passed, Result
from ..subject import Subject, floats


def finite(subject: Subject) -> Iterator[Result]:
    """Every output is finite; otherwise the first module with finite inputs and a non-finite output is reported."""
    import torch

    outputs = dict(floats(subject.call(subject.inputs)))  # those of padding included: NaN there spreads in training
    counts = {name: int((~torch.isfinite(part)).sum()) for name, part in outputs.items()}
    counts = {name: count for name, count in counts.items() if count}
    if not counts:
        yield Passed("finite", f"every value of {', '.join(outputs)} is finite")
        return
    name, count = next(iter(counts.items()))
    part = outputs[name]
    first = (~torch.isfinite(part)).nonzero()[0].tolist()
    words = " and ".join(
        word for word, some in (("NaN", torch.isnan(part)), ("infinity", torch.isinf(part))) if bool(some.any())
    )
    source = _source(subject)
    yield Finding(
        check="finite",
        severity="fault",
        where=f"{name}, first at index {first}",
        measured=f"{words} in {count:,} of {part.numel():,} values (threshold: 0)",
        cause=f"{source} is the first module with finite inputs and a non-finite output"
        if source
        else "no module turns finite inputs into non-finite outputs: a weight or an input is not finite",
        fix="check that module for a division by 0, a fully masked row, or scores beyond the range of the dtype "
        f"({str(part.dtype).removeprefix('torch.')})"
        if source
        else "check weights and inputs: torch.isfinite(parameter).all()",
        numbers={"output": name, "count": count, "first": first, "module": source},
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

    hooks = [
        module.register_forward_hook(observe, with_kwargs=True) for module in getattr(subject.model, "modules", list)()
    ]
    try:
        subject.run(subject.inputs)
    finally:
        for hook in hooks:
            hook.remove()
    return sources[0] if sources else None
