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
from .counting.attempts import ran
from .counting.passes import CACHES, cache_of, held, loss_of, next_step
from .model.build import Subject
from .result import ModelCost
from .stand_ins.experts import set_on

PASSES = 5
LONGEST = 60.0  # seconds, after which no other pass begins


def measured(made: Subject, found: ModelCost) -> ModelCost:
    """The cost with a third column: parameters, bytes of weights, cache and activations as measured, and the time."""
    _check_memory(found)
    model = _with_data(made, found.dtype)
    given = _with_values(model, ran(made, found.tokens, found.batch, "prefill")[2])
    train = found.phase == "train"
    model.train(train)
    memory = found.memory
    try:
        with torch.set_grad_enabled(train):
            if found.phase == "decode":
                given = next_step(model, given)
            saved, cache = _kept(model, given, train)
            seconds = _seconds(model, given, train)
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
    weights = {id(each): each for each in model.parameters()}.values()
    memory = replace(
        memory,
        weights=replace(memory.weights, measured=sum(each.untyped_storage().nbytes() for each in weights)),
        kv_cache=memory.kv_cache if train else replace(memory.kv_cache, measured=cache),
        activations=replace(memory.activations, measured=saved if train else None),
    )
    parameters = replace(found.parameters, measured=sum(each.numel() for each in weights))
    clock = None if found.time is None else replace(found.time, measured=seconds)
    return replace(found, parameters=parameters, memory=memory, time=clock)


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
    set_on(config, None)
    with quiet():
        model: nn.Module = kind._from_config(config, dtype=getattr(torch, dtype), **own)
    return model


def _with_values(model: nn.Module, given: dict[str, Any]) -> dict[str, Any]:
    """Random inputs of the same shapes."""
    torch.manual_seed(0)
    kind = next(model.parameters()).dtype
    words = getattr(getattr(model, "config", None), "vocab_size", None) or 2
    return {
        name: torch.randn(each.shape).to(kind) if each.is_floating_point() else torch.randint(1, words, each.shape)
        for name, each in given.items()
    }


def _seconds(model: nn.Module, given: dict[str, Any], train: bool) -> float:
    """The median of some passes, the first of which does not count."""
    taken: list[float] = []
    began = time.perf_counter()
    while len(taken) <= PASSES and not (taken and time.perf_counter() - began > LONGEST):
        now = {name: copy.deepcopy(each) if name in CACHES else each for name, each in given.items()}
        start = time.perf_counter()
        out = model(**now)
        loss = loss_of(out) if train else None
        if loss is not None:
            loss.backward()
        taken.append(time.perf_counter() - start)
        model.zero_grad(set_to_none=True)
    return statistics.median(taken[1:] or taken)


def _kept(model: nn.Module, given: dict[str, Any], train: bool) -> tuple[int, int]:
    """Bytes that one pass saves for its backward pass, each storage once, and bytes of the cache."""
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    saving = torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor) if train else nullcontext()
    now = {name: copy.deepcopy(each) if name in CACHES else each for name, each in given.items()}
    with saving:
        out = model(**now)
    return sum(storages.values()), held(*cache_of(out))[0]
