"""Entry points of `look` for transformers models and for any torch module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...common.errors import refuse
from ...torch.hf.load_model import Opened, opened
from ...torch.observe.observer import arguments
from ..runs.axis import Axis
from ..runs.run import Run
from .inputs import given_image, given_inputs, given_text
from .keeper import Axes, RecordingOptions
from .run_model import record_model
from .session import record_module


def of_module(model, inputs, tokens: Sequence[str] | None, options: RecordingOptions) -> Run:
    """The run of any torch module, method or function."""
    args, named = arguments(inputs)
    axes = Axes({} if tokens is None else {"text": Axis.of([str(token) for token in tokens])}, needed=True)
    name = getattr(model, "__name__", type(model).__name__)
    return record_module(
        model, lambda: model(*args, **named), name=name, text="", axes=axes, batch=None, options=options
    )


def of_model(what, options: RecordingOptions, *, text, target, image, inputs, tokenizer, generate: int) -> Run:
    """The run of a transformers model: a folder or hub id to open, a loaded model, or one that was opened before."""
    if isinstance(generate, bool) or not isinstance(generate, int) or generate < 0:
        raise refuse(
            "look",
            "generate is not a number of tokens",
            f"generate={generate!r}",
            "an integer, at least 0",
            "pass a number of tokens, or leave it out to generate none",
        )
    if isinstance(what, Opened):
        model = what
    elif what is None or isinstance(what, str | Path):
        if tokenizer is not None:
            raise refuse(
                "look",
                "tokenizer= is not used",
                "tokenizer= with a folder or hub id",
                "the tokenizer in the model's folder",
                "leave it out, or load the model yourself",
            )
        model = opened(what, writes=generate > 0, reads=text is not None, sees=image is not None)
    else:
        model = Opened(getattr(what, "name_or_path", "") or type(what).__name__, what, tokenizer, own=False)
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
