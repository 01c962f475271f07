"""Attempts: the ways in which a model may run without data, tried in order until it does.

A model's code may make tensors of its own, with values or without, and may compute with its mask in place of passing it
on. So it is run with new tensors on the meta device and on the CPU; in training, with what chance decides (dropout,
hidden stretches of sound) and without; if it computes with its mask, on its own attention code, which forms every pair;
and if it chooses experts by values, with stand-ins for them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ...common.errors import Refused, first_line, refuse
from ...torch.hf.tiny_models import tiny_config
from ..build import Subject
from ..inputs import candidates, with_values, without_data
from ..stand_ins.attention import NAME
from ..stand_ins.experts import replace_routed
from .passes import Pass, run

SIZES = ((12, 2), (20, 3))  # tokens and sequences


def confirm(made: Subject) -> None:
    """Raises Refused if the operations differ."""
    config = tiny_config(type(made.config), made.config)
    kind: Any = type(made.model)
    with torch.device("meta"):
        small = kind._from_config(copy.deepcopy(config), attn_implementation=NAME).eval()
    replace_routed(small)
    for tokens, batch in SIZES:
        given = next(candidates(small, tokens, batch))
        with torch.device("meta"):
            expected = _operations(small, given)
        with torch.random.fork_rng():
            torch.manual_seed(0)
            real = kind._from_config(copy.deepcopy(config), attn_implementation=NAME).eval()
            found = _operations(real, with_values(real, given))
        if found != expected:
            raise refuse(
                "cost",
                "which experts a token meets depends on values",
                f"{kind.__name__}: {found:,} operations of a small model with data, {expected:,} by its sizes",
                "a model in which each token meets the same number of experts",
                "count a model of another architecture",
            )


def _operations(model: nn.Module, given: dict[str, Any]) -> int:
    return sum(product.flops for product in run(model, given, "prefill").forward)


WAYS = (("meta", True), ("meta", False), ("cpu", False))  # where new tensors are, whether modules are in training mode


def ran(made: Subject, tokens: int, batch: int, phase: str) -> tuple[Subject, Pass, dict[str, Any]]:
    """The model as it ran, the pass, and its inputs, which are the first that the model accepts."""
    failed: list[Exception] = []
    for each in _ways(made):
        for given in _inputs(made, tokens, batch):
            for device, training in WAYS if phase == "train" else WAYS[1:]:
                try:
                    with torch.device(device) if device == "meta" else nullcontext():
                        return each, run(each.model, given, phase, training), given
                except Exception as error:  # third-party code may reject an input with any error
                    if isinstance(error, Refused) and error.where == "cost":
                        raise  # it concerns the question, not the way
                    failed.append(error)
        refused = [error for error in failed if isinstance(error, Refused)]
        if not refused:
            break
    if refused:
        raise refused[0]
    if made.config is not None and replace_routed(made.model):
        confirm(made)
        given = next(_inputs(made, tokens, batch))
        with torch.device("meta"):
            return made, run(made.model, given, phase), given
    raise refuse(
        "cost",
        "the model cannot run without data",
        f"{type(made.model).__name__}: {type(failed[0]).__name__}: {first_line(failed[0])[:120]}",
        "a model whose operations depend on shapes alone",
        "pass the language model or the image model inside it",
    ) from failed[0]


def _inputs(made: Subject, tokens: int, batch: int) -> Iterator[dict[str, Any]]:
    """Those of the caller, or all that the model may accept."""
    return candidates(made.model, tokens, batch) if made.inputs is None else iter([without_data(made)])


def _ways(made: Subject) -> Iterator[Subject]:
    """The model as it is, and with its own attention code."""
    yield made
    if not made.own_attention:
        made.model.set_attn_implementation("eager")
        yield replace(made, own_attention=True)
