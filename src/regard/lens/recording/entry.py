"""How `look` comes in: with a model of transformers, or with any torch module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ...common.errors import refuse
from ...torch.hf.load_model import Opened, opened
from ...torch.observe.observer import arguments
from ..runs.axis import Axis
from ..runs.run import Run
from .axes import Axes
from .inputs import given_inputs, given_picture, given_text
from .keeper import Asked
from .run_model import record_model
from .session import record_module

__all__ = ["of_model", "of_module"]


def of_module(model, inputs, tokens: Sequence[str] | None, asked: Asked) -> Run:
    """Any torch module, method or function."""
    args, named = arguments(inputs)
    axes = Axes({} if tokens is None else {"text": Axis.of([str(token) for token in tokens])}, needed=True)
    name = getattr(model, "__name__", type(model).__name__)
    return record_module(model, lambda: model(*args, **named), name=name, text="", axes=axes, batch=None, asked=asked)


def of_model(what, asked: Asked, *, text, target, picture, inputs, tokenizer, generate: int) -> Run:
    """A model of transformers, opened or loaded."""
    if isinstance(generate, bool) or not isinstance(generate, int) or generate < 0:
        raise refuse(
            "look",
            "no number of tokens",
            given=f"generate={generate!r}",
            expected="a whole number",
            fix="leave it out to write nothing",
        )
    if what is None or isinstance(what, str | Path):
        if tokenizer is not None:
            raise refuse(
                "look",
                "a tokenizer that is not read",
                given="tokenizer= for a model that is opened here",
                expected="the model's own",
                fix="leave it out, or load the model yourself",
            )
        model = opened(what, writes=generate > 0, reads=text is not None, sees=picture is not None)
    else:
        model = Opened(getattr(what, "name_or_path", "") or type(what).__name__, what, tokenizer, own=False)
    if picture is not None:
        given = given_picture(model, picture, text, asked.entry)
    elif text is not None:
        given = given_text(model, text, target, asked.entry, generate)
    elif isinstance(inputs, Mapping):
        given = given_inputs(model, inputs, asked.entry)
    else:
        raise refuse(
            "look",
            "inputs without names",
            given=type(inputs).__name__,
            expected="a dict by the names of the model's arguments",
            fix="write inputs={'input_ids': ids}",
        )
    return record_model(model, given, asked, generate)
