"""A model with one input, as batches of copies, and what is measured of its output."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

from ...common.errors import refuse
from ...common.module_settings import is_transformers_model
from ...models.language_model import LanguageModel
from ...observe.observer import arguments
from ...torch.hf.load_model import Opened, opened
from ..recording.inputs import given_inputs, given_text
from ..runs.axis import Axis, named
from ..runs.first_view import position_of

SHOWN, LEAST = 8, 0.0001  # tokens of a difference, and the least movement of an output
LOSS, LOGIT, KL, COSINE = "loss", "logit", "kl", "cosine"


@dataclass(frozen=True, eq=False)
class Subject:
    """A model with the arguments of one entry. axis: the tokens of the text, or numbers · ids: of the text that the
    model reads or writes, (tokens,), if known · tokenizer: of the model, if any · writes: whether it predicts the next
    token · where: the function that refuses what does not fit.
    """

    model: torch.nn.Module
    args: tuple[Any, ...]
    named: dict[str, Any]
    axis: Axis
    ids: torch.Tensor | None = None
    tokenizer: Any = None
    writes: bool = False
    where: str = "effects"

    @property
    def words(self) -> Any:
        """The tokenizer itself, which may be a part of a processor."""
        return Opened("", self.model, self.tokenizer).words

    def __call__(self, copies: int) -> Any:
        """The output of a batch of copies of the input."""

        def repeat(value: Any) -> Any:
            return value.expand(copies, *value.shape[1:]) if isinstance(value, torch.Tensor) and value.ndim else value

        return self.model(*map(repeat, self.args), **{name: repeat(value) for name, value in self.named.items()})

    @classmethod
    def of(
        cls, model: Any, text: str | None, target: str | None, inputs: Any, tokenizer: Any, where: str = "effects"
    ) -> Subject:
        """A model by name with a text, a loaded one, or a module with inputs."""
        if is_transformers_model(model) or model is None or not callable(model):
            held = model if isinstance(model, torch.nn.Module) else None
            if held is None and tokenizer is not None:
                fix = "leave it out: the folder has its own"
                raise refuse(where, "tokenizer= is not used", "a model by name", "a loaded model", fix)
            if (text is None) == (inputs is None):
                passed = "no text" if text is None else "a text and inputs"
                raise refuse(where, "one input is needed", passed, "text= or inputs=", "pass the text alone")
            found = opened(model, writes=None) if held is None else Opened(type(held).__name__, held, tokenizer, False)
            return cls._of_transformers(found, text, target, inputs, where)
        if inputs is None or (text, target, tokenizer) != (None, None, None):
            what = "nothing to run" if inputs is None else "a text or tokenizer for a module"
            raise refuse(where, what, type(model).__name__, "the arguments of the module", "pass inputs=, and no text")
        args, named = arguments(inputs)
        first = next((one for one in (*args, *named.values()) if isinstance(one, torch.Tensor) and one.ndim > 1), None)
        ids = first[0] if isinstance(model, LanguageModel) and first is not None else None
        axis = Axis.of(1 if first is None else first.shape[1])
        return cls(model, args, named, axis, ids, writes=ids is not None, where=where)._checked()

    @classmethod
    def _of_transformers(cls, held: Opened, text: str | None, target: str | None, inputs: Any, where: str) -> Subject:
        given = given_inputs(held, inputs, 0) if text is None else given_text(held, text, target, 0, 0)
        entries = given.inputs
        if is_writer := held.model.can_generate():
            entries = entries | {"use_cache": False}
        read = entries.get("decoder_input_ids", entries.get("input_ids"))
        axis = given.axes.get("target", given.axes.get("text")) or Axis.of(1 if read is None else len(read[0]))
        ids = None if read is None else read[0]
        return cls(held.model, (), entries, axis, ids, held.tokenizer, is_writer, where)._checked()

    def with_input(self, source: Any, target: str | None) -> Subject:
        """The same model with another text, or with other inputs."""
        text, inputs = (source, None) if isinstance(source, str) else (None, source)
        target = None if text is None else target
        return Subject.of(self.model, text, target, inputs, self.tokenizer, self.where)

    def position(self, token: str | int) -> int:
        """The position of a token of the text, a number or a word. Refused: a word that it does not have."""
        found = position_of(self.axis, str(token))
        if found is None:
            fix = f"choose among: {' '.join(named(self.axis, at) for at in range(min(40, len(self.axis))))}"
            expected = f"a position from 0 to {len(self.axis) - 1}, or a word of the text"
            raise refuse(self.where, "no such token", f"{token!r}", expected, fix)
        return found

    def spell(self, number: int) -> str | int:
        """A token of the vocabulary as text, or its number where the tokenizer is not known."""
        return number if self.words is None else self.words.decode([number])

    def _checked(self) -> Subject:
        tensors = [each for each in (*self.args, *self.named.values()) if isinstance(each, torch.Tensor) and each.ndim]
        if more := next((tuple(each.shape) for each in tensors if each.shape[0] != 1), None):
            raise refuse(self.where, "a batch of several entries", f"{more}", "a batch of 1", "pass one text or entry")
        if self.model.training:
            raise refuse(self.where, "a model in training mode", "dropout", "the same output each time", "model.eval()")
        return self


def measure_of(
    measure: str | Callable[[Any], Any] | None, clean: Any, subject: Subject, token: str | int | None
) -> tuple[str, Callable[[Any], torch.Tensor]]:
    """The name of the measure, and the function from the output of a batch to (batch,) numbers; clean: the output to
    compare with.
    """
    if callable(measure):
        return getattr(measure, "__name__", "measure"), lambda out: torch.as_tensor(measure(out)).reshape(-1)
    return _named(measure, clean, subject, token)


def _named(measure: str | None, clean: Any, subject: Subject, token: str | int | None):
    logits: Any = main_output(clean) if subject.writes else getattr(clean, "logits", None)
    ids: Any = subject.ids
    fits = logits is not None and logits.ndim == 3 and ids is not None and logits.shape[1] == len(ids)
    writes = subject.writes and fits
    name = (LOSS if writes else COSINE) if measure is None else measure
    before = main_output(clean).double()
    if name == COSINE:
        return name, lambda out: _per_entry(
            1 - F.cosine_similarity(main_output(out).double(), before, dim=-1)
        ).clamp_min(0)
    if name == LOSS and writes and len(ids) > 1:
        return name, lambda out: _per_entry(_losses(main_output(out), ids))
    if name == KL and logits is not None:
        expected = logits.double().log_softmax(-1)
        return name, lambda out: _per_entry(
            (expected.exp() * (expected - main_output(out).double().log_softmax(-1))).sum(-1)
        )
    if name == LOGIT and logits is not None:
        number = int(_last(logits)[0].argmax()) if token is None else token_number(token, subject, logits.shape[-1])
        return name, lambda out: _last(main_output(out))[:, number]
    raise refuse(
        "effects",
        "the output does not have this measure",
        f"measure={name!r} of {type(subject.model).__name__}",
        "cosine, a function of the output; loss, logit and kl of models with logits, loss of more than one token",
        "pass measure='cosine', or load the model with its language head",
    )


def _per_entry(numbers: torch.Tensor) -> torch.Tensor:
    """The mean over the tokens of each entry."""
    return numbers.reshape(len(numbers), -1).mean(1)


def _losses(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """The nats of every token but the first."""
    return F.cross_entropy(logits[:, :-1].double().mT, ids[1:].expand(len(logits), -1), reduction="none")


def _last(logits: torch.Tensor) -> torch.Tensor:
    """(batch, vocabulary) of the last token, or of the whole entry."""
    return logits.reshape(len(logits), -1, logits.shape[-1])[:, -1]


def token_number(token: str | int, subject: Subject, size: int) -> int:
    """The number of a token among this many. Refused: a text of several tokens, and other numbers."""
    if isinstance(token, int):
        found = [token] if 0 <= token < size else []
    else:
        found = [] if subject.words is None else subject.words.encode(token, add_special_tokens=False)
    if len(found) != 1:
        raise refuse(
            subject.where,
            "not one token",
            f"token={token!r}, which is {len(found)} tokens",
            f"a word that the vocabulary has as one token, or a number from 0 to {size - 1}",
            "pass its number, or a word with its space, such as ' cat'",
        )
    return found[0]


def main_output(out: Any) -> torch.Tensor:
    """The tensor that the output is mainly."""
    for name in ("last_hidden_state", "logits"):
        if isinstance(found := getattr(out, name, None), torch.Tensor):
            return found
    parts = list(out.values()) if isinstance(out, Mapping) else out if isinstance(out, tuple | list) else [out]
    found = next((part for part in parts if isinstance(part, torch.Tensor) and part.is_floating_point()), None)
    if found is None:
        raise refuse(
            "effects",
            "an output without a tensor",
            type(out).__name__,
            "a tensor of floats",
            "pass measure= as a function",
        )
    return found


def difference(subject: Subject, before: Any, after: Any) -> list[str]:
    """The likeliest next tokens of models that write, otherwise the tokens whose outputs change most."""
    if subject.writes:
        chances = [main_output(out)[0, -1].double().softmax(-1) for out in (before, after)]
        likeliest = sum(chances).topk(SHOWN).indices.tolist()
        rows = [f"{chances[0][each]:8.2%} {chances[1][each]:8.2%}  {subject.spell(each)!r}" for each in likeliest]
        return ["  before    after  next token", *rows]
    was, now = (main_output(out).double() for out in (before, after))
    moves = (1 - F.cosine_similarity(was, now, dim=-1)).reshape(-1)
    order = [at for at in moves.argsort(descending=True)[:SHOWN].tolist() if moves[at] >= LEAST]
    if not order:
        return [f"no output moves by {LEAST} or more (1 - cosine)"]
    tokens = subject.axis.tokens if len(subject.axis) == len(moves) else [""] * len(moves)
    return [
        "1 - cosine of the outputs before and after",
        *(f"{moves[at]:10.4f}  {tokens[at]!r} ({at})" for at in order),
    ]
