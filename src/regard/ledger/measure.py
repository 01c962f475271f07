"""Measure: runs a model with data on this machine: what it holds, and how long a pass takes.

Weights are random, and torch's own attention computes, which in training with dropout keeps its weights; a cache and
activations are those of transformers. The time is the median of some passes.
"""

from __future__ import annotations

import copy
import statistics
import time
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..common.errors import Refused, first_line, refuse
from ..engines.hardware import memory_bytes
from ..torch.hf.readiness import quiet
from .build import Subject
from .counting.passes import CACHES, cache_of, held, loss_of, next_step, ran, saving
from .inputs import with_values
from .result import ModelCost
from .stand_ins import set_experts

PASSES = 5
LONGEST = 60.0  # seconds, after which no other pass begins


def measured(made: Subject, found: ModelCost) -> ModelCost:
    """The cost with a third column: parameters, bytes of weights, cache and activations as measured, and the time."""
    _check_memory(found)
    model = _with_data(made, found.dtype)
    torch.manual_seed(0)
    given = with_values(model, ran(made, found.tokens, found.batch, "prefill")[2])
    train = found.phase == "train"
    model.train(train)
    memory, saved = found.memory, [0]
    times: list[float] = []
    try:
        with torch.set_grad_enabled(train):
            if found.phase == "decode":
                given = next_step(model, given)
            with saving(model, saved.append) if train else nullcontext():
                cache = held(*cache_of(_timed(model, given, train)[0]))[0]  # the time of a first pass does not count
            end = time.perf_counter() + LONGEST
            while not times or (len(times) < PASSES and time.perf_counter() < end):
                times.append(_timed(model, given, train)[1])
    except Refused:
        raise
    except Exception as error:  # third-party code
        raise refuse(
            "cost",
            "the model fails when it runs",
            f"{type(model).__name__}: {type(error).__name__}: {first_line(error)[:160]}",
            "a model that runs on this machine with random tokens",
            "leave out --measure",
        ) from error
    weights = list(model.parameters())
    memory = replace(
        memory,
        weights=replace(memory.weights, measured=sum(each.untyped_storage().nbytes() for each in weights)),
        kv_cache=memory.kv_cache if train else replace(memory.kv_cache, measured=cache),
        activations=replace(memory.activations, measured=sum(saved) if train else None),
    )
    parameters = replace(found.parameters, measured=sum(each.numel() for each in weights))
    clock = None if found.time is None else replace(found.time, measured=statistics.median(times))
    return replace(found, parameters=parameters, memory=memory, time=clock)


def _timed(model: nn.Module, given: dict[str, Any], train: bool) -> tuple[Any, float]:
    """What one pass returns, and its seconds. A cache is copied, because the pass appends to it."""
    given = {name: copy.deepcopy(each) if name in CACHES else each for name, each in given.items()}
    start = time.perf_counter()
    out = model(**given)
    loss = loss_of(out) if train else None
    if loss is not None:
        loss.backward()
    seconds = time.perf_counter() - start
    model.zero_grad(set_to_none=True)
    return out, seconds


def _check_memory(found: ModelCost) -> None:
    have, need = memory_bytes(), found.memory.held + found.memory.activations.value
    if have is not None and need > 0.8 * have:
        raise refuse(
            "cost",
            "the model is too large to be measured here",
            f"{need:,} bytes for {found.phase} with {found.tokens:,} tokens",
            f"at most 80 % of the {have:,} bytes of this machine",
            "measure a smaller model, fewer tokens, or leave out --measure",
        )


def _with_data(made: Subject, dtype: str) -> nn.Module:
    """The model with random weights."""
    kind = type(made.model)
    if not hasattr(kind, "_from_config"):
        raise refuse(
            "cost",
            "only models of transformers can be measured",
            kind.__name__,
            "a model that is built from a configuration",
            "leave out --measure",
        )
    own = {} if made.own_attention else {"attn_implementation": "sdpa"}
    config = copy.deepcopy(made.config)
    set_experts(config, None)
    with quiet():
        model: nn.Module = kind._from_config(config, dtype=getattr(torch, dtype), **own)
    return model
