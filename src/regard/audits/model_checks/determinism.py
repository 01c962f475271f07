"""Whether two identical runs agree, and whether the model is still in training."""

from __future__ import annotations

from collections.abc import Iterator

from ..difference import gap
from ..finding import Finding, Passed, Result
from ..subject import Subject

__all__ = ["determinism", "training"]

NORMS = ("BatchNorm", "SyncBatchNorm")


def training(subject: Subject) -> Iterator[Result]:
    """No module was in training mode before the audit set all to evaluation."""
    modes = subject.training
    drops = {name: p for name, module in modes.items() if isinstance(p := getattr(module, "p", None), float) and p > 0}
    norms = [name for name, module in modes.items() if any(word in type(module).__name__ for word in NORMS)]
    if not modes:
        yield Passed("training-mode", "no module is in training mode")
        return
    acts = [f"{len(drops)} with dropout ({', '.join(f'{p:g}' for p in sorted(set(drops.values())))})"] if drops else []
    acts += [f"{len(norms)} with statistics of the batch"] if norms else []
    yield Finding(
        check="training-mode",
        severity="fault" if acts else "note",
        where=next(iter([*drops, *norms, *modes])) or "the model",
        measured=(
            f"{len(modes)} modules in training mode: "
            f"{' and '.join(acts) or 'none with dropout or statistics of the batch'}"
        ),
        cause="model.eval() was not called, or model.train() came after it",
        mend="model.eval()",
        numbers={"modules": len(modes), "dropout": len(drops), "batch_norm": len(norms)},
    )


def determinism(subject: Subject) -> Iterator[Result]:
    """Two runs with the same inputs, but other random numbers, differ by no more than rounding."""
    between = gap(subject, subject.run(subject.given, seed=1), subject.run(subject.given, seed=2))
    if not between.open:
        yield Passed("determinism", "two runs agree" + (" bit for bit" if not between.size else f": {between}"))
        return
    yield Finding(
        check="determinism",
        severity="fault",
        where=between.output,
        measured=f"two identical runs: {between}",
        cause=(
            "random numbers in evaluation mode: torch.nn.functional.dropout without "
            "training=self.training, noise, or random keys"
        ),
        mend="pass training=self.training to dropout; draw random numbers only while training",
        numbers=between.numbers(),
    )
