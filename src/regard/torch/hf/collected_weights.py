"""Whether the weights of a call are wanted: by the model, its configuration, or who collects its outputs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import torch

# The modules for which it was decided last that weights are wanted. Gradient checkpointing repeats a call during the
# backward, where no model collects, and the repetition must save the same tensors.
_decided: weakref.WeakKeyDictionary[Any, bool] = weakref.WeakKeyDictionary()


def wanted(module: Any, output_attentions: bool | None) -> bool:
    """Whether to return the weights of this call of `module`. None: it passed on no `output_attentions`."""
    if torch._C._current_graph_task_id() >= 0:  # inside a backward
        return _decided.get(module, bool(output_attentions))
    decision = _decide(module, output_attentions)
    if decision:
        _decided[module] = True
    elif _decided:
        _decided.pop(module, None)
    return decision


def _decide(module: Any, output_attentions: bool | None) -> bool:
    collected = _collector()()
    if output_attentions or collected is not None:
        return bool(output_attentions) or any("attentions" in name for name in collected or ())
    configured = getattr(getattr(module, "config", None), "output_attentions", False)
    return output_attentions is None and bool(configured)


@functools.cache
def _collector() -> Callable[[], Mapping[str, list] | None]:
    """What reads the outputs that the running model collects, by name; None outside a model that collects."""
    from transformers.utils.output_capturing import _active_collector

    return _active_collector.get
