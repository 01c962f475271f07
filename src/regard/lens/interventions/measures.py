"""What is measured of the output of a model, and how it differs from another one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from ...common.errors import refuse
from .subject import Subject, main_output
from .what_if import what_if

SHOWN, LEAST = 8, 0.0001  # tokens of a difference, and the least movement of an output
Measured = Callable[[Any], torch.Tensor]


def measure_of(
    measure: str | Callable[[Any], Any] | None, clean: Any, subject: Subject, token: str | int | None
) -> tuple[str, Measured]:
    """The name of the measure, and the function from the output of a batch to (batch,) numbers; clean: the output to
    compare with.
    """
    if callable(measure):
        return getattr(measure, "__name__", "measure"), lambda out: torch.as_tensor(measure(out)).reshape(-1)
    ids, before = subject.ids, main_output(clean).double()
    known: dict[str, Measured] = {}
    if subject.writes and ids is not None and before.shape[1:-1] == ids.shape:
        targets = ids[1:]
        known["loss"] = lambda now: F.cross_entropy(now[:, :-1].mT, targets.expand(len(now), -1), reduction="none")
    known["cosine"] = lambda now: (1 - F.cosine_similarity(now, before, dim=-1)).clamp_min(0)
    if subject.writes or getattr(clean, "logits", None) is not None:
        chances = before.log_softmax(-1)
        known["kl"] = lambda now: F.kl_div(now.log_softmax(-1), chances, reduction="none", log_target=True).sum(-1)
        last = before.reshape(-1, before.shape[-1])[-1]
        number = int(last.argmax()) if token is None else subject.number(token, len(last))
        known["logit"] = lambda now: now.reshape(len(now), -1, len(last))[:, -1, number]
    name = next(iter(known)) if measure is None else measure  # loss, if the model writes the text
    if name not in known or (name == "loss" and not len(targets)):
        raise refuse(
            "effects",
            "the output does not have this measure",
            f"measure={name!r} of {type(subject.model).__name__}",
            "cosine, a function of the output; loss, logit and kl of models with logits, loss of more than one token",
            "pass measure='cosine', or load the model with its language head",
        )

    def mean(out: Any) -> torch.Tensor:
        """The mean over the tokens of each entry."""
        now = main_output(out).double()
        return known[name](now).reshape(len(now), -1).mean(1)

    return name, mean


def difference(subject: Subject, **change: Any) -> list[str]:
    """What `what_if(**change)` changes: the likeliest next tokens of models that write, otherwise the tokens whose
    outputs move most.
    """
    with torch.no_grad():
        was = main_output(subject(1)).double()
        with what_if(subject.model, **change):
            now = main_output(subject(1)).double()
    if subject.writes:
        before, after = (each[0, -1].softmax(-1) for each in (was, now))
        likeliest = (before + after).topk(min(SHOWN, len(before))).indices.tolist()
        rows = [f"{before[each]:8.2%} {after[each]:8.2%}  {subject.spell(each)!r}" for each in likeliest]
        return ["  before    after  next token", *rows]
    moves = (1 - F.cosine_similarity(was, now, dim=-1)).reshape(-1)
    order = [at for at in moves.argsort(descending=True)[:SHOWN].tolist() if moves[at] >= LEAST]
    if not order:
        return [f"no output moves by {LEAST} or more (1 - cosine)"]
    tokens = subject.axis.tokens if len(subject.axis) == len(moves) else [""] * len(moves)
    rows = [f"{moves[at]:10.4f}  {tokens[at]!r} ({at})" for at in order]
    return ["1 - cosine of the outputs before and after", *rows]
