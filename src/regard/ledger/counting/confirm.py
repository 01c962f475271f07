"""Confirm: whether stand-ins for experts do the operations of the model's own code, on small models with data.

A small model of the same code, with the options of the configuration, runs on the CPU at two sizes, and its products
are counted; so are those of the stand-ins at the same sizes, without data. Only if both agree are the stand-ins used at
the size of the configuration.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import nn

from ...common.errors import refuse
from ...torch.hf.tiny_models import tiny_config
from ..model.build import Subject
from ..model.inputs import candidates
from ..stand_ins.attention import NAME
from ..stand_ins.routed import replace_routed
from .passes import run

SIZES = ((12, 2), (20, 3))  # tokens and sequences


def confirm(made: Subject) -> None:
    """Raises Refused if the operations differ."""
    config = tiny_config(type(made.config), made.config)
    kind: Any = type(made.model)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        real = kind._from_config(copy.deepcopy(config), attn_implementation=NAME).eval()
    with torch.device("meta"):
        small = kind._from_config(copy.deepcopy(config), attn_implementation=NAME).eval()
    replace_routed(small)
    for tokens, batch in SIZES:
        given = next(candidates(small, tokens, batch))
        with torch.device("meta"):
            expected = _operations(small, given)
        found = _operations(real, _with_values(real, given))
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


def _with_values(model: Any, given: dict[str, Any]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    words = getattr(model.config, "vocab_size", 2)
    return {
        name: torch.randint(3, words, each.shape, generator=generator)
        if not each.is_floating_point()
        else torch.randn(each.shape, generator=generator)
        for name, each in given.items()
    }
