"""The checks training-mode and determinism: the model is in evaluation mode, and identical runs agree."""

from __future__ import annotations

from collections.abc import Iterator

from ..difference import difference
from ..finding import Finding, Passed, Result
from ..subject import Subject

NORMS = ("BatchNorm", "SyncBatchNorm")


def training(subject: Subject) -> Iterator[Result]:
    """No module was in training mode before the audit switched the model to evaluation mode."""
    modes = subject.training
    drops = {name: p for name, module in modes.items() if isinstance(p := getattr(module, "p", None), float) and p > 0}
    norms = [name for name, module in modes.items() if any(word in type(module).__name__ for word in NORMS)]
    if not modes:
        yield Passed("training-mode", "no module is in training mode")
        return
    acts = [f"{len(drops)} with dropout ({', '.join(f'{p:g}' for p in sorted(set(drops.values())))})"] if drops else []
    acts += [f"{len(norms)} with batch statistics"] if norms else []
    yield Finding(
        check="training-mode",
        severity="fault" if acts else "note",
        where=next(iter([*drops, *norms, *modes])) or "the model",
        measured=(
            f"{len(modes)} modules are in training mode: "
            f"{' and '.join(acts) or 'none of them has dropout or batch statistics'}"
        ),
        cause="model.eval() was not called, or model.train() was called after it",
        fix="call model.eval()",
        numbers={"modules": len(modes), "dropout": len(drops), "batch_norm": len(norms)},
    )


def determinism(subject: Subject) -> Iterator[Result]:
    """Two runs with the same inputs and different random seeds differ by no more than rounding."""
    between = difference(subject, subject.run(subject.inputs, seed=1), subject.run(subject.inputs, seed=2))
    if not between.significant:
        yield Passed("determinism", "two runs " + ("are bit-identical" if not between.size else f"agree: {between}"))
        return
    yield Finding(
        check="determinism",
        severity="fault",
        where=between.output,
        measured=f"between two runs with the same inputs, {between}",
        cause=(
            "random numbers in evaluation mode: torch.nn.functional.dropout without "
            "training=self.training, noise, or random keys"
        ),
        fix="pass training=self.training to dropout; draw random numbers in training mode only",
        numbers=between.numbers(),
    )
