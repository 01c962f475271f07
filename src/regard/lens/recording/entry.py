"""Runs a torch model under the observer, stores its calls, and returns the Run: entry points of `look` for transformers
models and for any torch module.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ...common.errors import Refused, first_line, refuse
from ...common.module_settings import implementations, layer_number
from ...common.text.units import counted
from ...observe.observer import arguments, left_alone, module_of
from ...observe.recorder import NAME
from ...torch.hf import attention as hf
from ...torch.hf.load_model import Opened
from ...torch.hf.readiness import assigned
from ..runs.axis import Axis
from ..runs.run import Run, Step
from .inputs import Given, given_image, given_inputs, given_text
from .keeper import UNSEEN, Axes, Keeper, RecordingOptions, hash_of, keeping
from .observer import Recorder, weights_of
from .token_text import check_length, spelled

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


def record_model(opened: Opened, given: Given, options: RecordingOptions, writes: int) -> Run:
    """The run of a model.

    A model that was opened here and that regard does not support runs on its own code, which is observed. A loaded
    model with an attention implementation that cannot be observed runs on regard instead.
    """
    model = opened.model
    try:
        return _recorded(opened, given, options, writes)
    except Refused as refused:
        if opened.own and NAME in implementations(model) and refused.where in (NAME, "regard mask"):
            model.set_attn_implementation("eager")
        elif (
            opened.own
            or not hasattr(model, "set_attn_implementation")
            or not any(UNSEEN in each.given for each in refused.reasons)
        ):
            raise
        unseen = refused
    if opened.own:
        return _recorded(opened, given, options, writes)
    try:
        with on_regard(model):
            return _recorded(opened, given, options, writes)
    except Refused as refused:
        raise unseen if refused.where == "check" else refused from None


def _recorded(opened: Opened, given: Given, options: RecordingOptions, writes: int) -> Run:
    model = opened.model
    common: dict[str, Any] = {
        "name": opened.name,
        "text": given.text,
        "axes": Axes(given.axes, given.patches),
        "batch": given.batch,
        "options": options,
    }
    if not writes:
        once = {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}
        after = partial(_predicted, opened, options.entry)
        return record_module(model, lambda: model(**{**once, **given.inputs}), after=after, **common)
    written = _Written(opened, given, options.entry, writes)
    return record_module(model, written.generate, rows=written.rows, after=written.after, **common)


def _predicted(opened: Opened, entry: int, result: Any, keeper: Keeper) -> tuple[Sequence[Step], dict[str, Any]]:
    """The likeliest next tokens after the text as the fact `predicted`, and as `expected` the likeliest one for every
    token but the first, with its probability; nothing of a model without logits, or whose rows see later tokens.
    """
    logits: Any = getattr(result, "logits", None)
    axis = keeper.axes.known.get("text")
    if axis is None or getattr(logits, "shape", ())[1:2] != (len(axis),) or opened.words is None:
        return (), {}
    if any(call.queries == "text" and call.weights(rows=0, keys=-1).any() for call in keeper.calls):
        return (), {}
    steps, _ = steps_of(1, logits[entry], 0, lambda ids: spelled(opened.words, ids, None))
    likeliest = [list(step.candidates[0]) for step in steps]
    return (), {"predicted": [list(pair) for pair in steps[-1].candidates], "expected": likeliest[:-1]}


class _Written:
    """Greedy generation. The model generates one token more than is recorded, so that the last one has its row too."""

    def __init__(self, opened: Opened, given: Given, entry: int, writes: int):
        self.opened, self.given, self.entry, self.writes = opened, given, entry, writes
        self.decodes = bool(getattr(opened.model.config, "is_encoder_decoder", False))
        if not getattr(opened.model, "can_generate", lambda: False)():
            raise refuse(
                "look",
                "the model cannot generate text",
                f"generate={writes} for {type(opened.model).__name__}",
                "a model with a language modeling head",
                "load it with AutoModelForCausalLM, or leave generate= out",
            )
        ids = given.inputs.get("decoder_input_ids" if self.decodes else "input_ids")
        if ids is None and not self.decodes:
            raise refuse(
                "look", "generation without a prompt", f"generate={writes} without input_ids", "a prompt", "pass a text"
            )
        begun = 1 if ids is None else ids.shape[1]
        self.rows = begun + writes
        check_length(begun, opened.longest, opened.name, writes)

    def generate(self):
        config, padded = self.opened.model.generation_config, {}
        if config.pad_token_id is None:  # otherwise transformers warns that it chose one
            end = config.eos_token_id[0] if isinstance(config.eos_token_id, list) else config.eos_token_id
            known = (getattr(self.opened.words, "pad_token_id", None), end, 0)
            padded["pad_token_id"] = next(token for token in known if token is not None)
        return self.opened.model.generate(
            **self.given.inputs,
            **padded,
            max_new_tokens=self.writes + 1,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            return_dict_in_generate=True,
            output_scores=True,
        )

    def after(self, generated, keeper: Keeper) -> tuple[tuple[Step, ...], dict[str, Any]]:
        """Adds the generated tokens to the axes; returns the steps, and facts such as why generation stopped."""
        ids = generated.sequences[self.entry].tolist()
        kept, begun = ids[: len(ids) - 1], len(ids) - len(generated.scores)  # the last token was not an input
        new = kept[begun:]
        axes = keeper.axes.known
        name = "target" if self.decodes else "text"
        begins = self._tokens(ids[:begun]) if self.decodes else axes[name].tokens
        special = (True,) * begun if self.decodes else axes[name].special
        ends = set(getattr(self.opened.words, "all_special_ids", ()))
        words, flags = (*begins, *self._tokens(kept)[begun:]), (*special, *(token in ends for token in new))
        begun_as = Axis(name, words, flags) if self.decodes else axes[name]
        axes[name] = replace(begun_as, tokens=words, special=flags, ids=tuple(kept))
        scores = [each[self.entry] for each in generated.scores[: len(new)]]
        return steps_of(begun, scores, self.writes, self._tokens)

    def _tokens(self, ids: list[int]) -> tuple[str, ...]:
        tokenizer = self.opened.words
        return tuple(map(str, ids)) if tokenizer is None else spelled(tokenizer, ids, None)


def of_module(model, inputs, tokens: Sequence[str] | None, options: RecordingOptions) -> Run:
    """The run of any torch module, method or function."""
    args, named = arguments(inputs)
    axes = Axes({} if tokens is None else {"text": Axis.of([str(token) for token in tokens])}, needed=True)
    name = getattr(model, "__name__", type(model).__name__)
    # Of images, whose layers may attend within windows, the batch is known; of other arrays the first call tells it.
    images = [each for each in (*args, *named.values()) if getattr(each, "ndim", 0) > 3]
    batch = len(images[0]) if len(images) == len(args) + len(named) == 1 else None
    return record_module(
        model, lambda: model(*args, **named), name=name, text="", axes=axes, batch=batch, options=options
    )


def of_model(model: Opened, options: RecordingOptions, *, text, target, image, inputs, generate: int) -> Run:
    """The run of a transformers model."""
    if image is not None:
        given = given_image(model, image, text, options.entry)
    elif text is not None:
        given = given_text(model, text, target, options.entry, generate)
    elif isinstance(inputs, Mapping):
        given = given_inputs(model, inputs, options.entry)
    else:
        raise refuse(
            "look",
            "inputs without argument names",
            type(inputs).__name__,
            "a dict from the model's argument names to values",
            "pass inputs={'input_ids': ids}",
        )
    return record_model(model, given, options, generate)
