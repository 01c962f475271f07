"""Exact self-attention for NumPy arrays and torch tensors, with CPU kernels that are compiled for each mask and score.

Examples:
    >>> import numpy as np, regard as rg
    >>> q, k, v = np.random.default_rng(0).standard_normal((3, 8, 128, 64), dtype=np.float32)
    >>> rg.attention(q, k, v, mask=rg.causal() & rg.window(64)).shape
    (8, 128, 64)
"""

import importlib
from typing import TYPE_CHECKING

from .api.attention import attention, attention_weights, attention_with_lse
from .api.kv_cache import KVCache
from .common.errors import Refused
from .common.public import belong, no_attribute
from .common.thread_count import threads
from .api.explain import Explanation, explain
from .language.expr import batch, head, key, query, score, table
from .language.functions import (
    atan,
    ceil,
    clip,
    cos,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    log,
    log1p,
    log2,
    maximum,
    minimum,
    pow,
    relu,
    round_even,
    rsqrt,
    sigmoid,
    sign,
    sin,
    softplus,
    sqrt,
    square,
    tan,
    tanh,
    to_float,
    to_int,
    trunc,
    where,
)
from .api.backward import attention_backward
from .language.masks import (
    blocks,
    causal,
    dense,
    dilated,
    documents,
    everything,
    global_tokens,
    lengths,
    padding,
    prefix,
    strided,
    window,
)
from .language.measures import mass, pooled, top
from .api.part import merge
from .api.part import Part, attention_part
from .language.selected_keys import selected_keys
from .language.tree.sizes import teach_dynamo
from .language.scores import alibi, alibi_slopes, bias, gate, relative, softcap, t5_buckets
from .api.statistics import Statistics, attention_stats

if TYPE_CHECKING:  # for editors and type checkers; at run time these are loaded on first access
    from .audits import audit
    from .conformance import conform
    from .ledger import cost
    from .lens import Run, heatmap, look
    from .lens.interventions.what_if import what_if
    from .lens.interventions.effects import effects
    from .lens.residual.circuits import circuits
    from .lens.residual.contributions import contributions, logit_lens

__version__ = "0.1.0"

# Names that are loaded on first use, with the package that defines them.
LAZY = {
    "Run": "lens",
    "audit": "audits",
    "conform": "conformance",
    "circuits": "lens.residual.circuits",
    "contributions": "lens.residual.contributions",
    "cost": "ledger",
    "effects": "lens.interventions.effects",
    "heatmap": "lens",
    "logit_lens": "lens.residual.contributions",
    "look": "lens",
    "what_if": "lens.interventions.what_if",
}

__all__ = [
    "Explanation",
    "KVCache",
    "Part",
    "Refused",
    "Run",
    "Statistics",
    "alibi",
    "alibi_slopes",
    "atan",
    "attention",
    "attention_backward",
    "attention_part",
    "attention_stats",
    "attention_weights",
    "attention_with_lse",
    "audit",
    "batch",
    "bias",
    "blocks",
    "causal",
    "ceil",
    "circuits",
    "clip",
    "conform",
    "contributions",
    "cos",
    "cost",
    "dense",
    "dilated",
    "documents",
    "effects",
    "erf",
    "everything",
    "exp",
    "exp2",
    "explain",
    "expm1",
    "floor",
    "gate",
    "global_tokens",
    "head",
    "heatmap",
    "key",
    "lengths",
    "padding",
    "log",
    "log1p",
    "log2",
    "logit_lens",
    "look",
    "mass",
    "maximum",
    "merge",
    "minimum",
    "pooled",
    "pow",
    "prefix",
    "query",
    "relative",
    "relu",
    "round_even",
    "rsqrt",
    "score",
    "selected_keys",
    "sigmoid",
    "sign",
    "sin",
    "softcap",
    "softplus",
    "sqrt",
    "square",
    "strided",
    "t5_buckets",
    "table",
    "tan",
    "tanh",
    "threads",
    "to_float",
    "to_int",
    "top",
    "trunc",
    "what_if",
    "where",
    "window",
]


def __getattr__(name: str):
    if name not in LAZY:
        raise no_attribute(__name__, name)
    return getattr(importlib.import_module(f".{LAZY[name]}", __name__), name)


def __dir__() -> list[str]:
    """The public names, for editors: those that are loaded on first access, too."""
    return sorted([*__all__, "__version__"])


belong(__name__)
teach_dynamo()
