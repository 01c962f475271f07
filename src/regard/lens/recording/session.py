"""One pass of a torch model under the observer: its calls go to the keeper, and all of it becomes a Run."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...common.errors import Refused, first_line, refuse
from ...torch.hf import attention as hf
from ...torch.hf.recorder import NAME, implementations, layer_number
from ...torch.observe.observer import left_alone, module_of
from ..runs.run import Run, Step
from .axes import Axes
from .keeper import Asked, Keeper, keeping
from .observer import Recorder
from .provenance import facts, hash_of
from .tensor_layout import weights_of

__all__ = ["on_regard", "record_module", "takes"]

After = Callable[[Any, Keeper], tuple[Sequence[Step], dict[str, Any]]]


def record_module(
    model,
    call: Callable[[], Any],
    *,
    name: str,
    text: str,
    axes: Axes,
    batch: int | None,
    asked: Asked,
    rows: int = 0,
    after: After | None = None,
) -> Run:
    """The run that `call()` makes of the model. rows: how many there will be when passes are joined, 0 for one pass.

    after(what call gave, keeper): the steps and facts of a generation, once the model has run; it completes the axes.
    """
    owner = module_of(model)
    modules = {} if owner is None else dict(owner.named_modules())

    def alike(layer: str) -> int:
        kind = type(modules.get(layer))
        return sum(
            type(module) is kind and asked.wants(path, layer_number(module, path)) for path, module in modules.items()
        )

    with keeping(asked, axes, alike, rows) as keeper:
        recorder = Recorder(model, keeper.take, batch=batch, entry=asked.entry, wanted=asked.wants)
        with left_alone(model), recorder.recording():
            came = _called(call, name)
        steps, written = ((), {}) if after is None else after(came, keeper)
        known = (
            {}
            if owner is None
            else {"implementation": sorted(implementations(owner)), "weights": hash_of(weights_of(owner))}
        )
        return keeper.run(name, text, recorder.passed, steps, {**facts(), **known, **written})


def _called(call: Callable[[], Any], name: str) -> Any:
    try:
        return call()
    except Refused:
        raise
    except Exception as error:  # somebody else's code, which may fail in any way
        raise refuse(
            "look",
            f"the model stopped with {type(error).__name__}",
            given=f"{name}: {first_line(error, 'without a word')[:200]}",
            expected="inputs that it takes",
            fix="regard.torch.trace(model, inputs) says where it stopped, and what it was given there",
        ) from error


@contextlib.contextmanager
def on_regard(model) -> Iterator[None]:
    """The model of transformers runs on regard; what each of its parts was set to is put back."""
    hf.register()
    configs = {
        id(config): config for module in model.modules() if (config := getattr(module, "config", None)) is not None
    }
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
