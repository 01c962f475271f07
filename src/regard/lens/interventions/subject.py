"""`Subject`: a model with one input, as batches of copies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ...common.errors import refuse
from ...common.module_settings import is_transformers_model
from ...models.language_model import LanguageModel
from ...observe.observer import arguments
from ...torch.hf.load_model import Opened, opened
from ..recording.inputs import given_inputs, given_text
from ..runs.axis import Axis, named
from ..runs.first_view import position_of


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with the arguments of one entry. axes: the texts that it reads and writes, the one that its output
    follows last · ids: of that text, (tokens,), if known · writes: whether it predicts the next token · tokenizer: of
    the model, if any · where: the function that refuses what does not fit.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    named: dict[str, Any]
    axes: dict[str, Axis]
    ids: torch.Tensor | None = None
    writes: bool = False
    tokenizer: Any = None
    where: str = "effects"

    @classmethod
    def of(
        cls, model: Any, text: str | None, target: str | None, inputs: Any, tokenizer: Any, where: str = "effects"
    ) -> Subject:
        """A model by name with a text, a loaded one, or a module with inputs."""
        by_name = model is None or not callable(model)
        if not by_name and not is_transformers_model(model):
            if inputs is None or (text, target, tokenizer) != (None, None, None):
                what = "nothing to run" if inputs is None else "a text or tokenizer for a module"
                fix = "pass inputs=, and no text"
                raise refuse(where, what, type(model).__name__, "the arguments of the module", fix)
            args, entries = arguments(inputs)
            tensors = [each for each in (*args, *entries.values()) if isinstance(each, torch.Tensor) and each.ndim > 1]
            ids = tensors[0][0] if isinstance(model, LanguageModel) and tensors else None
            axes = {"text": Axis.of(tensors[0].shape[1] if tensors else 1)}
            return cls(model, args, entries, axes, ids, ids is not None, where=where)
        if by_name and tokenizer is not None:
            fix = "leave it out: the folder has its own"
            raise refuse(where, "tokenizer= is not used", "a model by name", "a loaded model", fix)
        passed = [name for name, value in (("text", text), ("inputs", inputs), ("target", target)) if value is not None]
        if passed not in (["text"], ["inputs"], ["text", "target"]):
            given, fix = " and ".join(passed) or "no text", "pass the text alone"
            raise refuse(where, "one input is needed", given, "text= or inputs=", fix)
        held = opened(model, writes=None) if by_name else Opened(type(model).__name__, model, tokenizer, False)
        found = given_inputs(held, inputs, 0) if text is None else given_text(held, text, target, 0, 0)
        writes, entries = held.model.can_generate(), found.inputs
        read = entries.get("decoder_input_ids", entries.get("input_ids"))
        axes = found.axes or {"text": Axis.of(1 if read is None else len(read[0]))}
        entries = entries | {"use_cache": False} if writes else entries
        return cls(held.model, (), entries, axes, None if read is None else read[0], writes, held.tokenizer, where)

    def __post_init__(self) -> None:
        """Refuses batches, and models whose output is another one each time."""
        tensors = [each for each in (*self.args, *self.named.values()) if isinstance(each, torch.Tensor) and each.ndim]
        if more := next((tuple(each.shape) for each in tensors if each.shape[0] != 1), None):
            raise refuse(self.where, "a batch of several entries", f"{more}", "a batch of 1", "pass one text or entry")
        if self.model.training:
            raise refuse(self.where, "a model in training mode", "dropout", "the same output each time", "model.eval()")

    def with_input(self, source: Any, target: str | None) -> Subject:
        """The same model with another text, or with other inputs."""
        text, inputs = (source, None) if isinstance(source, str) else (None, source)
        target = None if text is None else target
        return Subject.of(self.model, text, target, inputs, self.tokenizer, self.where)

    def __call__(self, copies: int) -> Any:
        """The output of a batch of copies of the input."""

        def repeat(value: Any) -> Any:
            return value.expand(copies, *value.shape[1:]) if isinstance(value, torch.Tensor) and value.ndim else value

        return self.model(*map(repeat, self.args), **{name: repeat(value) for name, value in self.named.items()})

    # Tokens -----------------------------------------------------------------------------------------------------------

    @property
    def axis(self) -> Axis:
        """The tokens of the text that the output follows, or numbers."""
        return list(self.axes.values())[-1]

    @property
    def words(self) -> Any:
        """The tokenizer itself, which may be a part of a processor."""
        return Opened("", self.model, self.tokenizer).words

    def spell(self, number: int) -> str | int:
        """A token of the vocabulary as text, or its number where the tokenizer is not known."""
        return number if self.words is None else self.words.decode([number])

    def number(self, token: str | int, size: int) -> int:
        """The number of a token in a vocabulary of this size. Refused: a text of several tokens, and other numbers."""
        if isinstance(token, int):
            found = [token] if 0 <= token < size else []
        else:
            found = [] if self.words is None else self.words.encode(token, add_special_tokens=False)
        if len(found) != 1:
            raise refuse(
                self.where,
                "not one token",
                f"token={token!r}, which is {len(found)} tokens",
                f"a word that the vocabulary has as one token, or a number from 0 to {size - 1}",
                "pass its number, or a word with its space, such as ' cat'",
            )
        return found[0]

    def position(self, token: str | int) -> int:
        """The position of a token of the text, a number or a word. Refused: a word that it does not have."""
        found = position_of(self.axis, str(token))
        if found is None:
            fix = f"choose among: {' '.join(named(self.axis, at) for at in range(min(40, len(self.axis))))}"
            expected = f"a position from 0 to {len(self.axis) - 1}, or a word of the text"
            raise refuse(self.where, "no such token", f"{token!r}", expected, fix)
        return found


def main_output(out: Any) -> torch.Tensor:
    """The tensor that the output is mainly."""
    for name in ("last_hidden_state", "logits"):
        if isinstance(found := getattr(out, name, None), torch.Tensor):
            return found
    parts = list(out.values()) if isinstance(out, Mapping) else out if isinstance(out, tuple | list) else [out]
    found = next((part for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point()), None)
    if found is None:
        fix = "pass measure= as a function"
        raise refuse("effects", "an output without a tensor", type(out).__name__, "a tensor of floats", fix)
    return found
