"""torch's own function while regard computes it (`regard.torch.replace_sdpa`), next to torch: what a call costs beyond
`rg.attention`, and the shapes of real models, lowest ratio first.

    python -m bench.replaced_sdpa [PART OF A SHAPE'S NAME …]
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F

import regard as rg
from regard.torch import replace_sdpa

from .interleave import Pace, interleaved, seconds
from .shapes import DTYPES, MASKS, PACE, SHAPES, Shape

CALLS = 200  # of a burst of small calls


def overhead() -> None:
    """Microseconds of a call of one row, in a loop, in memory as models have it."""
    q = torch.randn(1, 4, 8, 16).transpose(1, 2)

    def loop(call):
        return torch.no_grad()(lambda: [call() for _ in range(CALLS)])

    ways = {
        "rg.attention": loop(lambda: rg.attention(q, q, q)),
        "replaced": loop(lambda: F.scaled_dot_product_attention(q, q, q)),
    }
    own = torch.ops.aten.scaled_dot_product_attention.default.decompose
    with replace_sdpa():
        spans = interleaved(ways | {"torch": loop(lambda: own(q, q, q))}, PACE)
    print(" · ".join(f"{name} {seconds(each) / CALLS * 1e6:.1f} µs" for name, each in spans.items()))


def measure(shape: Shape, dtype: str, pace: Pace = PACE) -> list[tuple[float, str]]:
    """The ratios of torch's time to that of the replaced function, forward, and forward and backward."""
    random, kind = torch.Generator().manual_seed(0), getattr(torch, dtype)
    B, H, G, D, E = shape.B, shape.H, shape.G or shape.H, shape.D, shape.E or shape.D
    sizes = (B, shape.Q, H, D), (B, shape.K, G, D), (B, shape.K, G, E)
    arrays = [torch.randn(size, generator=random).to(kind).transpose(1, 2) for size in sizes]
    if shape.Q == 1:  # as a cache has them
        arrays[1:] = [each.contiguous() for each in arrays[1:]]
    mask = MASKS[shape.mask](shape) if shape.mask else None
    mask = mask.to(kind) if mask is not None and mask.is_floating_point() else mask
    rest = {"attn_mask": mask, "is_causal": shape.causal, "enable_gqa": G != H}
    own = torch.ops.aten.scaled_dot_product_attention.default.decompose
    leaves = [each.clone().requires_grad_() for each in arrays]
    found = []
    for task, given in (("forward", arrays), ("forward and backward", leaves)):

        def run(function, given=given):
            out = function(*given, **rest)
            return torch.autograd.grad(out.sum(), given) if out.requires_grad else out

        with replace_sdpa(), torch.set_grad_enabled(given is leaves):
            ways = {"regard": lambda: run(F.scaled_dot_product_attention), "torch": lambda: run(own)}
            spans = interleaved(ways, pace)
        times = seconds(spans["regard"]), seconds(spans["torch"])
        line = f"{shape}, {dtype}, {task}: {times[0] * 1e3:.3f} ms, torch {times[1] * 1e3:.3f} ms"
        found.append((times[1] / times[0], line))
    return found


def main() -> None:
    overhead()
    words = sys.argv[1:]
    shapes = [shape for shape in SHAPES if not words or any(word in str(shape) for word in words)]
    found = [each for shape in shapes for dtype in DTYPES for each in measure(shape, dtype)]
    for ratio, line in sorted(found):
        print(f"{ratio:.2f} × {line}")


if __name__ == "__main__":
    main()
