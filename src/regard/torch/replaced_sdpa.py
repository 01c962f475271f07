"""`replace_sdpa`: regard computes torch's own attention on the CPU, in programs that are not edited.

torch's function is an operator of its dispatcher, `aten::scaled_dot_product_attention`. While it is replaced, the
kernels of the CPU for this operator are those of this file: so every call comes here, in every thread, from Python, C++
and programs that are being compiled, after autocast has cast it. What regard does not compute, torch computes.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, ClassVar

import torch

from ..api.attention import attention
from ..common.dtypes import torch_dtypes
from ..common.text.units import counted
from ..engines import direct
from ..engines.fast_path import ROWS_FIRST
from ..language.checks.arguments import Arguments
from ..language.masks import causal
from .functional import attention_rows_first
from .replaced_operators import ReplacedOperators

NAME = "scaled_dot_product_attention"
OPERATOR = torch.ops.aten.scaled_dot_product_attention.default
REGARD = "regard"  # under which the calls are counted that regard computed
CAUSAL, DTYPES = causal(), frozenset(torch_dtypes())
# Pairs up to which torch is faster where there are gradients (bench/LOG.md), in 16 bit and in more.
FEW, FEW_OF_16_BIT = 36 << 10, 1 << 8


def replace_sdpa() -> Replacement:
    """Lets regard compute torch's attention on the CPU, in the whole process, until `restore()` or the end of a block.

    out = softmax(scale · q kᵀ + mask) v, as torch.nn.functional.scaled_dot_product_attention defines it

    Every call of the function is replaced, in every thread: by models of any library, by `nn.MultiheadAttention` and
    `nn.TransformerEncoder` (whose fused code for inference is disabled meanwhile), under autocast, and in programs that
    torch.compile compiles meanwhile, where it becomes the operator `torch.ops.regard.attention`. Dropout is drawn from
    a seed of torch's generator: the same rate, other weights.

    torch computes what regard does not: tensors that are not on the CPU, other dtypes, sizes that broadcast, transforms
    of torch.func, and calls where `torch.nn.attention.sdpa_kernel` excludes FLASH_ATTENTION. With REGARD_REPLACE_SDPA=1
    in the environment, `import torch` calls this function.

    Returns:
        A context manager, which counts the calls and where they were computed.

    Examples:
        >>> import torch, regard.torch
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        >>> with torch.no_grad(), regard.torch.replace_sdpa() as replacement:
        ...     out = layer(torch.zeros(1, 8, 16))
        >>> replacement.calls
        Counter({'regard': 1})
    """
    return Replacement()


class Replacement(ReplacedOperators):
    """torch's attention, replaced until `restore()` or the end of the block; made by `replace_sdpa`.

    Args:
        calls: how many calls regard computed since, under "regard", and how many torch did, under the reason.

    Examples:
        >>> import torch, regard.torch
        >>> q = torch.zeros(1, 2, 3, 8)
        >>> with regard.torch.replace_sdpa() as replacement:
        ...     out = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        >>> replacement
        <scaled_dot_product_attention: 1 call by regard>
    """

    fused: ClassVar[bool]  # whether torch's fused layers were enabled before
    library: ClassVar[torch.library.Library]

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        super().__init__()

    @classmethod
    def connect(cls) -> None:
        """Replaces the kernels, and disables torch's fused layers, which have their own attention."""
        cls.library = torch.library.Library("aten", "IMPL")
        for key in ("CPU", "AutogradCPU"):
            cls.library.impl(NAME, _attend, key)
        OPERATOR._dispatch_cache.clear()  # of the kernels that programs that were compiled before have found
        cls.fused = torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(False)

    @classmethod
    def disconnect(cls) -> None:
        """Puts torch's own kernels back."""
        cls.library._destroy()
        OPERATOR._dispatch_cache.clear()
        torch.backends.mha.set_fastpath_enabled(cls.fused)

    def __repr__(self) -> str:
        by_torch = "".join(f", {count} by torch ({why})" for why, count in self.calls.items() if why != REGARD)
        return f"<{NAME}: {counted(self.calls[REGARD], 'call')} by regard{by_torch}>"


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """The operator on the CPU."""
    score = attn_mask if attn_mask is not None and attn_mask.dtype is not torch.bool else None
    mask: Any = CAUSAL if is_causal else attn_mask if score is None else None
    start = 0 if is_causal else None
    # In memory the output is as that of torch's kernel: the rows of all heads side by side where the queries have them.
    heads = enable_gqa or query.shape[-3:-2] == key.shape[-3:-2]
    beside = heads and query.ndim == 4 and query.stride(1) < query.stride(2) and query.shape[3] == value.shape[3]
    known = None
    few = torch.is_grad_enabled() and _few_to_learn(query, key, value)
    usual = not few and not dropout_p and (attn_mask is None or not is_causal) and torch._C._get_flash_sdp_enabled()
    if usual and query.ndim < 5 and (heads or key.shape[-3:-2] == (1,)):
        engine = ROWS_FIRST["auto"] if beside else "auto"
        known = direct.attend(query, key, value, mask, score, scale, start, None, 0.0, None, None, None, engine)
    why = "few pairs, with gradients" if few else None
    if known is None and not few:
        why = _why_not(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
        if scale is not None and not math.isfinite(scale):
            why = "a scale that only torch has"
    for each in Replacement.active:
        each.calls[why or REGARD] += 1
    if known is not None:
        return known.transpose(1, 2) if beside else known
    if why:
        options: Any = {"scale": scale, "enable_gqa": enable_gqa}
        return OPERATOR.decompose(query, key, value, attn_mask, dropout_p, is_causal, **options)
    seed = int(torch.randint(2**63 - 1, ())) if dropout_p else None
    arguments = Arguments(mask, score, scale, start, None, dropout_p, seed)
    if beside and not dropout_p and (attn_mask is None or not attn_mask.requires_grad):
        return attention_rows_first(query, key, value, arguments).transpose(1, 2)
    return attention(query, key, value, **arguments._asdict())


def _few_to_learn(q, k, v) -> bool:
    """Whether a call has gradients, and so few pairs that torch's time for them is less."""
    if q.ndim < 2 or not (q.requires_grad or k.requires_grad or v.requires_grad):
        return False
    return q.numel() // max(1, q.shape[-1]) * k.shape[-2] <= (FEW_OF_16_BIT if q.itemsize < 4 else FEW)


def _why_not(q, k, v, mask, dropout: float, causes: bool, grouped: bool) -> str | None:
    """Why torch computes a call, or raises its own error for it; None if regard does."""
    if q.dtype not in DTYPES or not q.dtype is k.dtype is v.dtype:
        return "a dtype that only torch has, or several"
    sizes, keys = q.shape, k.shape
    if len(sizes) < 3 or keys[:-1] != v.shape[:-1] or len(keys) != len(sizes) or keys[-1] != sizes[-1]:
        return "sizes that broadcast"
    H, G = sizes[-3], keys[-3]
    if sizes[:-3] != keys[:-3] or (H != G != 1 and not (grouped and G and not H % G)):
        return "sizes that broadcast"
    if not q.numel() or not k.numel() or not v.numel():
        return "no numbers"
    if mask is not None:
        if causes or mask.dtype not in (torch.bool, q.dtype) or mask.ndim > (4 if len(sizes) < 5 else 2):
            return "a mask that only torch has"
        grid = (*sizes[:-1], keys[-2])
        if any(size not in (1, other) for size, other in zip(mask.shape[::-1], grid[::-1])):
            return "a mask that only torch has"
    if not 0 <= dropout < 1:
        return "a rate of dropout that only torch has"
    if not torch._C._get_flash_sdp_enabled():
        return "the kernel was chosen by sdpa_kernel"
    if torch._C._are_functorch_transforms_active():
        return "a transform of torch.func"
    return None
