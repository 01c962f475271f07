"""Shapes of real models next to torch's SDPA: forward, and forward with backward, in each dtype; lowest ratio first.

A mask is passed as torch programs pass it: as a tensor of booleans, or of floats that are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from .interleave import Pace, Timed, interleaved, seconds

__all__ = ["SHAPES", "Shape", "measure"]

PACE = Pace(rounds=9, burst=0.05, pause=0.03)
DTYPES = "float32", "bfloat16", "float16"
# The largest error, relative to that of SDPA on the same input; a few roundings of the dtype where SDPA has none.
TIMES, ROUNDINGS = 4.0, 8.0


@dataclass(frozen=True)
class Shape:
    """B batch entries, H query heads over G key heads, Q rows, K keys, depths D and E. mask: a name in `MASKS`, or "";
    causal: the flag of SDPA, for as many rows as keys.
    """

    kind: str
    H: int
    Q: int
    K: int
    D: int = 64
    G: int = 0
    B: int = 1
    E: int = 0
    mask: str = ""
    causal: bool = False

    def __str__(self) -> str:
        heads = f"{self.H}" if self.G in (0, self.H) else f"{self.H} over {self.G}"
        batch = f"{self.B} × " if self.B > 1 else ""
        depth = f"{self.D}" if self.E in (0, self.D) else f"{self.D} and {self.E}"
        rule = f", {self.mask}" if self.mask else ", causal" if self.causal else ""
        return f"{self.kind}: {batch}{heads} heads, {self.Q} × {self.K}, depth {depth}{rule}"


SHAPES = (
    *(Shape("one row", 8, 1, keys) for keys in (64, 256)),
    *(Shape("one row", 12, 1, keys) for keys in (1024, 4096)),
    Shape("one row", 8, 1, 512, B=8),
    *(Shape("one row, grouped", 32, 1, keys, G=8) for keys in (2048, 8192)),
    *(Shape("few rows", 8, rows, keys) for rows, keys in ((5, 1024), (8, 4096), (4, 1024))),
    Shape("cross-attention of Whisper", 6, 4, 1500),
    Shape("one row of a batch", 1, 1, 77, B=512),
    *(
        Shape("mask as a tensor", 16, 1024, 1024, mask=mask)
        for mask in (
            "random",
            "all true",
            "causal tensor",
            "documents",
            "random floats",
            "causal floats",
            "head floats",
        )
    ),
    Shape("mask as a tensor", 4, 1024, 1024, B=4, mask="causal and padding"),
    Shape("windows of Swin", 3, 49, 49, D=32, B=64, mask="head floats"),
    Shape("MiniLM", 12, 64, 64, D=32, B=32, mask="padding"),
    Shape("short", 12, 16, 16, D=32),
    Shape("tiny", 8, 4, 4),
    *(Shape("short", 8, rows, rows) for rows in (32, 64, 128)),
    Shape("BERT", 12, 128, 128, B=8, mask="padding"),
    Shape("ViT", 12, 197, 197, B=8),
    Shape("T5", 8, 256, 256, B=4, mask="head floats"),
    Shape("diffusion", 8, 1024, 1024, D=40, B=2),
    Shape("diffusion, text", 8, 1024, 77, D=40, B=2),
    Shape("GPT-2", 12, 512, 512, B=2, causal=True),
    Shape("Llama", 32, 512, 512, D=128, G=8, causal=True),
    Shape("Gemma", 8, 512, 512, D=256, G=4, causal=True),
    Shape("latent keys", 16, 256, 256, D=192, E=128, causal=True),
    *(Shape("depth", 8, 512, 512, D=depth) for depth in (8, 16, 96)),
)


def measure(
    progress: Callable[[str], None], pace: Pace = PACE, shapes: tuple[Shape, ...] = SHAPES, shrink: int = 1
) -> list[Timed]:
    """Every shape in every dtype, those first where regard is slowest relative to SDPA; shrink divides rows and keys,
    for a quick test. A result that is less accurate than SDPA's ends the run.
    """
    found: list[Timed] = []
    for shape in shapes:
        small = replace(shape, Q=max(1, shape.Q // shrink), K=max(1, shape.K // shrink))
        for dtype in DTYPES:
            progress(f"{small}, {dtype}")
            for each in _timed(small, dtype, pace):
                found.append(each)
                progress(f"{each.name}, {each.task}, {dtype}: {each.ratio:.2f} × SDPA")
    return sorted(found, key=lambda each: each.ratio)


def _timed(shape: Shape, dtype: str, pace: Pace) -> Iterator[Timed]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    from regard.api.attention import attention
    from regard.language.masks import causal

    q, k, v, dout = _tensors(shape, getattr(torch, dtype))
    mask = MASKS[shape.mask](shape).to(q.device) if shape.mask else None
    if mask is not None and mask.dtype != torch.bool:
        mask = mask.to(q.dtype)
    rules: dict[str, Any] = {"mask": causal() if shape.causal else None}
    if mask is not None:
        rules = {"mask" if mask.dtype == torch.bool else "score": mask}

    def ours(*arrays):
        return attention(*arrays, **rules)

    def theirs(q, k, v, added=mask):
        grouped = shape.G not in (0, shape.H)
        return scaled_dot_product_attention(q, k, v, attn_mask=added, is_causal=shape.causal, enable_gqa=grouped)

    _check(shape, dtype, ours, theirs, (q, k, v), mask)
    leaves = [each.clone().requires_grad_() for each in (q, k, v)]

    def forward(attend):
        return torch.inference_mode()(lambda: attend(q, k, v))

    def both(attend):
        return lambda: torch.autograd.grad(attend(*leaves), leaves, dout)

    for task, kind in (("forward", forward), ("forward and backward", both)):
        spans = interleaved({"regard": kind(ours), "sdpa": kind(theirs)}, pace)
        yield Timed(str(shape), dtype, task, seconds(spans["regard"]), seconds(spans["sdpa"]))


def _check(shape: Shape, dtype: str, ours, theirs, arrays, mask) -> None:
    """Raises if the result is less accurate than a few times SDPA's."""
    import torch

    added = mask if mask is None or mask.dtype == torch.bool else mask.double()
    exact = theirs(*(each.double() for each in arrays), added=added)
    errors = [float((attend(*arrays).double() - exact).abs().max()) for attend in (ours, theirs)]
    budget = TIMES * errors[1] + ROUNDINGS * torch.finfo(getattr(torch, dtype)).eps * float(exact.abs().max())
    if not errors[0] <= budget:
        raise AssertionError(f"{shape}, {dtype}: the error is {errors[0]:.1e}, SDPA's {errors[1]:.1e}")


def _tensors(shape: Shape, dtype):
    import torch

    random = torch.Generator().manual_seed(0)
    B, H, G, D, E = shape.B, shape.H, shape.G or shape.H, shape.D, shape.E or shape.D
    sizes = (B, H, shape.Q, D), (B, G, shape.K, D), (B, G, shape.K, E), (B, H, shape.Q, E)
    return [torch.randn(size, generator=random).to(dtype) for size in sizes]


def _random(shape: Shape):
    import torch

    allowed = torch.rand(shape.Q, shape.K, generator=torch.Generator().manual_seed(1)) < 0.5
    allowed[:, 0] = True  # a row without keys is NaN in SDPA
    return allowed


def _triangle(shape: Shape):
    import torch

    return torch.ones(shape.Q, shape.K, dtype=torch.bool).tril(shape.K - shape.Q)


def _documents(shape: Shape):
    import torch

    document = torch.arange(shape.K) // max(1, shape.K // 6)
    return document[-shape.Q :, None] == document


def _padding(shape: Shape):
    """(B, 1, 1, K): sequences of different lengths."""
    import torch

    lengths = torch.linspace(max(1, shape.K // 4), shape.K, shape.B).long()
    return (torch.arange(shape.K) < lengths[:, None])[:, None, None]


def _floats(shape: Shape, heads: int = 0):
    """(Q, K), or (1, heads, Q, K)."""
    import torch

    sizes = (1, heads, shape.Q, shape.K) if heads else (shape.Q, shape.K)
    return torch.randn(sizes, generator=torch.Generator().manual_seed(1))


MASKS: dict[str, Callable[[Shape], Any]] = {
    "random": _random,
    "all true": lambda shape: _random(shape).fill_(True),
    "causal tensor": _triangle,
    "documents": _documents,
    "padding": _padding,
    "causal and padding": lambda shape: _triangle(shape) & _padding(shape),
    "random floats": _floats,
    "causal floats": lambda shape: _floats(shape).zero_().masked_fill_(~_triangle(shape), -math.inf),
    "head floats": lambda shape: _floats(shape, shape.H),
}
