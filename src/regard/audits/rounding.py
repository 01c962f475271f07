"""The measured effect of rounding: how much the outputs of a model change when every sum in it is perturbed by one unit
in the last place.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.nn.attention.bias import CausalBias
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

PERTURBED = (
    "mm",
    "mv",
    "dot",
    "conv",
    "softmax",
    "norm",
    "attention",
    "linear",
    "rsqrt",
)  # parts of the names of operators that compute sums

# Kernels for other lengths compute exponentials in another way, which no perturbed sum shows.
FLOOR = 4


class Perturbed(TorchDispatchMode):
    """Perturbs the results of sums by one unit in the last place of the largest value of their row, with random sign.

    Another summation order causes an error of about that size, because partial sums are as large as the largest
    results.
    """

    supports_higher_order_operators = True  # FlexAttention is one

    def __init__(self, seed: int):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        name = getattr(function, "overloadpacket", function).__name__
        if not any(part in name for part in PERTURBED):
            return result
        if isinstance(result, tuple):
            return (self._perturb(result[0]), *result[1:])
        return self._perturb(result)

    def _perturb(self, part):
        if not isinstance(part, torch.Tensor) or not part.is_floating_point():
            return part
        if part.is_nested:  # rows of several lengths have no shape to draw signs for
            sign = 2 * int(torch.randint(2, (), generator=self.generator)) - 1
            return part * (1 + sign * torch.finfo(part.dtype).eps)
        if not part.numel():
            return part
        signs = torch.randint(2, part.shape, generator=self.generator).mul_(2).sub_(1).to(part.device, part.dtype)
        largest = part.detach().abs().amax(-1, keepdim=True) if part.ndim else part.detach().abs()
        return part + signs * largest * torch.finfo(part.dtype).eps


@contextlib.contextmanager
def without_fast_path() -> Iterator[None]:
    """Disables the fused encoder layers of torch, which would hide their sums from `Perturbed`."""
    enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(enabled)


@contextlib.contextmanager
def causal_biases() -> Iterator[None]:
    """Lets models create the causal biases of torch, which are tensors without contents, below a dispatch mode: torch
    cannot create a subclass of tensors from what a mode returns.
    """

    def outside(kind, *args, **kwargs):
        with _disable_current_modes():
            return torch.Tensor.__new__(kind, *args, **kwargs)

    CausalBias.__new__ = outside
    try:
        yield
    finally:
        del CausalBias.__new__


def measure(
    run: Callable[[], Mapping[str, torch.Tensor]], outputs: Mapping[str, torch.Tensor], runs: int
) -> dict[str, float]:
    """The largest change of each output over the given number of perturbed runs; at least `FLOOR` units in the last
    place of a typical value of the output, one in 16 bits.
    """
    largest = {name: _least(part.dtype) * _typical(part) for name, part in outputs.items()}
    with without_fast_path():
        reference = run()
        for seed in range(runs):
            # Compiled frames are skipped below a dispatch mode, and torch never compiles a frame again that it has
            # skipped once: FlexAttention would fail in the whole process.
            with torch.compiler.set_stance("force_eager"), Perturbed(seed), causal_biases():
                perturbed = run()
            for name in largest:
                off = (perturbed[name].double() - reference[name].double()).abs()
                largest[name] = max(largest[name], float(off.nan_to_num(0, 0, 0).max()) if off.numel() else 0.0)
    return largest


def _least(dtype: torch.dtype) -> float:
    """The smallest relative effect of rounding that is assumed; even in float64 some softmax is computed in float32."""
    return torch.finfo(dtype).eps if dtype.itemsize < 4 else FLOOR * torch.finfo(torch.float32).eps


def _typical(part: torch.Tensor) -> float:
    """The median magnitude; not the maximum, because masked-out outputs may be the minimum of their dtype, and without
    zeros, which are most of the weights under a mask.
    """
    sizes = part.double().abs()
    sizes = sizes[torch.isfinite(sizes) & (sizes > 0)]
    return float(sizes.median()) if sizes.numel() else 0.0
