"""Session: a model runs once, calls become data one by one within the limits, and all of it becomes a Run."""

from __future__ import annotations

import contextlib
import fnmatch
import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import Reason, Refused, refuse
from ...torch.observe.calls import left_alone, module_of
from ...torch.recorder import NAME, implementations, layer_number
from ..axis import Axis
from ..call import Call
from ..container import Writer
from ..run import Run, Step
from ..sizes import shown, size_of
from .axes import Axes
from .facts import facts
from .observing import Recorder
from .steps import Growing
from .taken import Taken, measured

__all__ = ["Asked", "Keeper", "on_regard", "record_module", "takes"]

VALUES = 64_000_000  # bytes: up to here v, x and out are kept where nobody says


@dataclass(frozen=True)
class Asked:
    """What is to be kept: layers by number or pattern, one batch entry, values or not (None: while they are small), the most bytes,
    and the folder that calls are written to one by one."""

    layers: Sequence[int | str] | None = None
    entry: int = 0
    values: bool | None = None
    limit: int | str = "2GB"
    into: str | Path | None = None

    def wants(self, name: str, number: int | None) -> bool:
        return self.layers is None or any(_fits(part, name, number) for part in self.layers)


@dataclass(eq=False)
class Keeper:
    """Takes calls as they come. modules: of the model, by name; it predicts the size of the whole from the first call."""

    asked: Asked
    axes: Axes
    modules: dict[str, Any]
    rows: int = 0
    writer: Writer | None = None
    calls: list[Call] = field(default_factory=list)
    growing: dict[tuple[str, int], Growing] = field(default_factory=dict)
    names: set[tuple[str, int | None]] = field(default_factory=set)
    held: int = 0
    values: bool | None = None

    def take(self, taken: Taken) -> None:
        """A call that is complete; one of a generation waits for the later passes."""
        self._admit(taken)
        self.names.add((taken.name, taken.layer))
        if not self.rows:
            self._keep(taken)
        elif (taken.name, taken.nth) in self.growing:
            self.growing[taken.name, taken.nth].add(taken)
        else:
            self.growing[taken.name, taken.nth] = Growing(taken)

    def finish(self) -> list[Call]:
        for each in self.growing.values():
            self._keep(each.joined())
        return self.calls

    def _keep(self, taken: Taken) -> None:
        queries, keys = self.axes.place(taken)
        call = measured(taken, queries, keys, self.axes.special(keys), bool(self.values))
        self.calls.append(call if self.writer is None else self.writer.add(call))

    def _admit(self, taken: Taken) -> None:
        """Refuses before the memory or the disk is full: from the first call on, by the size that the whole will have."""
        limit = size_of(self.asked.limit, "look")
        if self.values is None:
            alike = self._alike(taken.name) * max(1.0, self.rows / max(taken.sizes[0], 1))
            everything = int(taken.nbytes(True) * alike)
            self.values = everything <= min(VALUES, limit) if self.asked.values is None else self.asked.values
            predicted = int(taken.nbytes(self.values) * alike)
            if predicted > limit:
                raise self._too_large(taken, predicted, "about ", limit)
        self.held += taken.nbytes(self.values)
        if self.held > limit:
            raise self._too_large(taken, self.held, "more than ", limit)

    def _too_large(self, taken: Taken, size: int, word: str, limit: int) -> Refused:
        Q, K = taken.sizes
        mend = "choose layers, as in layers=[0, 5], or raise limit="
        return refuse("look", "the run would be larger than the limit",
                      f"{word}{shown(size)}: {shown(taken.nbytes(bool(self.values)))} for {taken.name} with {Q} rows and {K} keys",
                      f"at most {shown(limit)}", mend + (", or values=False" if self.values else ""))  # fmt: skip

    def _alike(self, name: str) -> int:
        """How many layers like this one will be kept."""
        kind = type(self.modules.get(name))
        return max(
            1,
            sum(
                type(module) is kind and self.asked.wants(path, layer_number(module, path))
                for path, module in self.modules.items()
            ),
        )


def record_module(
    model, call: Callable[[], Any], *, name: str, text: str, axes: dict[str, Axis], batch: int | None, asked: Asked,
    rows: int = 0, more: dict[str, Any] | None = None, after: Callable[[Any, Keeper], tuple[str, tuple[Step, ...], dict[str, Any]]] | None = None,
) -> Run:  # fmt: skip
    """The run that `call()` makes of the model. rows: how many there will be when passes are joined, 0 for one pass.

    after(what call gave, keeper): the text, the steps and facts of a generation, once the model has run.
    """
    owner = module_of(model)
    kept = Axes(axes)
    keeper = Keeper(asked, kept, {} if owner is None else dict(owner.named_modules()), rows)
    recorder = Recorder(model, keeper.take, batch=batch, entry=asked.entry, wanted=asked.wants)
    with contextlib.ExitStack() as open_:
        if asked.into is not None:
            keeper.writer = open_.enter_context(Writer(asked.into, asked.limit))
        with left_alone(model), recorder.recording():
            came = call()
        steps: tuple[Step, ...] = ()
        told: dict[str, Any] = {}
        if after is not None:
            text, steps, told = after(came, keeper)
        calls = keeper.finish()
        _complain(asked, keeper, recorder, name)
        implemented = sorted(implementations(owner)) if owner is not None else []
        found = facts(owner, asked.entry, left_out=recorder.left_out, implementation=implemented, values=bool(keeper.values),
                      **(more or {}), **told)  # fmt: skip
        if asked.layers is not None:
            found["layers"] = list(asked.layers)
        if keeper.writer is not None:
            return keeper.writer.finish(name, text, kept.used, steps, found)
    return Run(name, text, kept.used, tuple(calls), steps, found)


def _complain(asked: Asked, keeper: Keeper, recorder: Recorder, name: str) -> None:
    """Refuses a run without calls, and layers that no call came from."""
    seen = keeper.names | {(each["call"].split(": ")[0], None) for each in recorder.left_out}
    reasons = []
    for part in asked.layers or ():
        if not any(_fits(part, *each) for each in seen):
            others = ", ".join(sorted(recorder.passed_over | {each for each, _ in seen})[:8])
            reasons.append(Reason("no such layer", f"{part!r}", f"a number, a name or a pattern such as '*.attn', of: {others}",
                                  "choose among these"))  # fmt: skip
    if not keeper.calls and not reasons:
        why = "; ".join(sorted({each["reason"] for each in recorder.left_out})) or "no attention call was seen"
        reasons.append(Reason("nothing to look at", f"{name}: {why}", "a call of attention through regard, torch, transformers' interface, "
                              "or a softmax between two products", "pass the weights themselves with weights="))  # fmt: skip
    if reasons:
        raise Refused("look", reasons)


def _fits(part: int | str, name: str, number: int | None) -> bool:
    return part == number if isinstance(part, int) else fnmatch.fnmatchcase(name, part)


@contextlib.contextmanager
def on_regard(model) -> Iterator[None]:
    """The model of transformers runs on regard; what each of its parts was set to is put back."""
    from ...torch import hf

    hf.register()
    configs = {id(config): config for module in model.modules() if (config := getattr(module, "config", None)) is not None}
    before = {key: getattr(config, "_attn_implementation", None) for key, config in configs.items()}
    model.set_attn_implementation(NAME)
    try:
        hf.check(model)
        yield
    finally:
        for key, config in configs.items():
            if before[key] is not None:
                config._attn_implementation = before[key]


def takes(model, name: str) -> bool:
    """Whether the model's forward has an argument of this name."""
    return name in inspect.signature(model.forward).parameters
