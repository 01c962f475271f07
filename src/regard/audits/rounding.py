"""How much of a difference is rounding: a model whose every product, norm and softmax is rounded another way."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["measure"]

ROUNDED = (
    "mm",
    "mv",
    "dot",
    "conv",
    "softmax",
    "norm",
    "attention",
    "linear",
    "rsqrt",
)  # in the names of the operators that add up


class Otherwise(TorchDispatchMode):
    """Inside, the results of sums are moved by one unit in the last place of their row's largest number, up or down by
    chance.

    A sum taken in another order errs by about that: the partial sums are as large as the largest results.
    """

    def __init__(self, seed: int):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        found = function(*args, **(kwargs or {}))
        name = function.overloadpacket.__name__
        if not any(part in name for part in ROUNDED):
            return found
        if isinstance(found, tuple):
            return (self._moved(found[0]), *found[1:])
        return self._moved(found)

    def _moved(self, part):
        if not isinstance(part, torch.Tensor) or not part.is_floating_point() or not part.numel():
            return part
        signs = torch.randint(2, part.shape, generator=self.generator).mul_(2).sub_(1).to(part.device, part.dtype)
        largest = part.detach().abs().amax(-1, keepdim=True) if part.ndim else part.detach().abs()
        return part + signs * largest * torch.finfo(part.dtype).eps


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """Inside, torch runs its own layers operator by operator: a whole layer in one, as in evaluation mode, hides its
    sums.
    """
    fused = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fused)


def measure(
    run: Callable[[], Mapping[str, torch.Tensor]], outputs: Mapping[str, torch.Tensor], runs: int
) -> dict[str, float]:
    """The largest difference of each output of `run` from what it is, over so many runs; at least one unit in its own
    last place.
    """
    found = {name: torch.finfo(part.dtype).eps * _usual(part) for name, part in outputs.items()}
    with apart():
        still = run()
        for seed in range(runs):
            with Otherwise(seed):
                moved = run()
            for name in found:
                off = (moved[name].double() - still[name].double()).abs()
                found[name] = max(found[name], float(off.nan_to_num(0, 0, 0).max()) if off.numel() else 0.0)
    return found


def _usual(part) -> float:
    """The size of a usual number: outputs that are ruled out may hold the floor of their dtype."""
    sizes = part.double().abs()
    sizes = sizes[torch.isfinite(sizes)]
    return float(sizes.median()) if sizes.numel() else 0.0
