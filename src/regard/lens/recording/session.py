"""Runs a torch model under the observer, stores its calls, and returns the Run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...common.errors import Refused, first_line, refuse
from ...common.text.units import counted
from ...torch.hf import attention as hf
from ...torch.hf.readiness import assigned
from ...torch.hf.recorder import NAME, implementations, layer_number
from ...torch.observe.observer import left_alone, module_of
from ..runs.run import Run, Step
from .keeper import Axes, Keeper, RecordingOptions, hash_of, keeping
from .observer import Recorder
from .tensor_layout import weights_of

LIKELIEST = 8  # candidates that are stored for every generated token
After = Callable[[Any, Keeper], tuple[Sequence[Step], dict[str, Any]]]


def record_module(
    model,
    call: Callable[[], Any],
    *,
    name: str,
    text: str,
    axes: Axes,
    batch: int | None,
    options: RecordingOptions,
    rows: int = 0,
    after: After | None = None,
) -> Run:
    """The run of the model while `call()` runs. rows: the number of rows once passes are joined, 0 for one pass.

    after(result of call, keeper): completes the axes and returns the steps and facts of generation.
    """
    owner = module_of(model)
    modules = {} if owner is None else dict(owner.named_modules())

    def alike(layer: str) -> int:
        kind = type(modules.get(layer))
        return sum(
            type(module) is kind and options.selects(path, layer_number(module, path))
            for path, module in modules.items()
        )

    with keeping(options, axes, alike, rows) as keeper:
        with left_alone(model), Recorder(model, keeper, batch).recording():
            result = _called(call, name)
        steps, written = ((), {}) if after is None else after(result, keeper)
        known: dict[str, Any] = {}
        if owner is not None:
            known["implementation"] = sorted(implementations(owner))
            if options.hashed:
                known["weights"] = hash_of(weights_of(owner))
        return keeper.run(name, text, steps, known | written)


def _called(call: Callable[[], Any], name: str) -> Any:
    try:
        return call()
    except Refused:
        raise
    except Exception as error:  # the model's code may raise anything
        raise refuse(
            "look",
            f"the model stopped with {type(error).__name__}",
            f"{name}: {first_line(error, 'no message')[:200]}",
            "inputs that the model accepts",
            "run regard.torch.trace(model, inputs), which shows where it stopped and with which arguments",
        ) from error


def steps_of(
    begun: int, logits: Sequence[Any], wanted: int, spell: Callable[[list[int]], Sequence[str]]
) -> tuple[tuple[Step, ...], dict[str, Any]]:
    """The steps of generation from the logits of each generated token, and its facts, such as why it stopped.

    begun: the length of the prompt · wanted: how many tokens were requested · spell: tokens as text.
    """
    steps = []
    for position, one in enumerate(logits, begun):
        found = one.double().softmax(-1).topk(min(LIKELIEST, one.shape[-1]))
        steps.append(Step(position, tuple(zip(spell(found.indices.tolist()), found.values.tolist(), strict=True))))
    facts: dict[str, Any] = {"generated": len(logits)}
    if len(logits) < wanted:
        facts["stopped"] = f"the model generated an end token after {counted(len(logits), 'token')}"
    return tuple(steps), facts


@contextlib.contextmanager
def on_regard(model) -> Iterator[None]:
    """Runs a transformers model on regard; afterwards the attention implementation of every part is restored."""
    hf.register()
    configs = {
        id(config): config for module in model.modules() if (config := getattr(module, "config", None)) is not None
    }
    before = {key: getattr(config, "_attn_implementation", None) for key, config in configs.items()}
    model.set_attn_implementation(NAME)
    try:
        if reasons := assigned(model):
            raise Refused("look", reasons)
        yield
    finally:
        for key, config in configs.items():
            if before[key] is not None:
                config._attn_implementation = before[key]
