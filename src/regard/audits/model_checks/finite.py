"""Whether what comes out are numbers: no NaN, no infinity."""

from __future__ import annotations

from collections.abc import Iterator

from ..finding import Finding, Passed, Result
from ..subject import Subject, floats

__all__ = ["finite"]


def finite(subject: Subject) -> Iterator[Result]:
    """Every output of the given inputs is finite; where one is not, the first module whose output is not, while its
    inputs are.
    """
    import torch

    spoiled = {name: int((~torch.isfinite(part)).sum()) for name, part in subject.outputs.items()}
    spoiled = {name: count for name, count in spoiled.items() if count}
    if not spoiled:
        yield Passed("finite", f"all numbers in {', '.join(subject.outputs)} are finite")
        return
    name, count = next(iter(spoiled.items()))
    part = subject.outputs[name]
    first = (~torch.isfinite(part)).nonzero()[0].tolist()
    words = " and ".join(
        word for word, some in (("NaN", torch.isnan(part)), ("infinity", torch.isinf(part))) if bool(some.any())
    )
    source = _source(subject)
    yield Finding(
        check="finite",
        severity="fault",
        where=f"{name}, first at {first}",
        measured=f"{words} in {count:,} of {part.numel():,} numbers",
        cause=f"{source} is the first to make them of finite inputs"
        if source
        else "no module makes them of finite inputs: a weight or an input holds them",
        mend="look there for a division by 0, a row that may attend nothing, or scores beyond the range of the dtype "
        f"({str(part.dtype).removeprefix('torch.')})",
        numbers={"output": name, "count": count, "first": first, "module": source},
    )


def _source(subject: Subject) -> str | None:
    """The innermost module that makes NaN or infinity of inputs and weights that have none."""
    import torch

    found: list[str] = []
    names = {id(module): name for name, module in getattr(subject.model, "named_modules", list)()}

    def look(module, args, kwargs, output):
        whole = all(
            bool(torch.isfinite(part).all())
            for given in (args, kwargs, dict(module.named_parameters()))
            for _, part in floats(given)
        )
        if whole and not all(bool(torch.isfinite(part).all()) for _, part in floats(output)):
            found.append(f"{names[id(module)] or 'the model'} ({type(module).__name__})")

    hooks = [
        module.register_forward_hook(look, with_kwargs=True) for module in getattr(subject.model, "modules", list)()
    ]
    try:
        subject.run(subject.given)
    finally:
        for hook in hooks:
            hook.remove()
    return found[0] if found else None
