"""Sums of tensors over ranks, added in the order of the ranks, so that every rank has the same bits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.arrays import as_tensor, read_array
from ..common.errors import refuse
from .exchange.agreement import agreed
from .exchange.processes import SECONDS, processes
from .exchange.transport import Transport, swap_arrays

if TYPE_CHECKING:
    import torch

FIX = "pass the same tensors on every rank, such as [each.grad for each in model.parameters()]"


def sum_over_ranks(tensors: Iterable[torch.Tensor], *, group: Any = None, timeout: float = SECONDS) -> None:
    """Replaces tensors by their sums over all ranks, in place, for gradients and losses.

    tensor = tensor of rank 0 + … + tensor of rank R − 1, in this order, in float64, rounded once.

    Every rank computes a part of each sum and sends it to the others, so all have the same bits. The sums of a library
    for communication have another order, which depends on the number of ranks and on sizes.

    Args:
        tensors: floating-point tensors on the CPU, with the same shapes and dtypes on every rank.
        group: the process group, or a DeviceMesh of one dimension; None is all.
        timeout: seconds that a rank waits for the others.

    Returns:
        None.

    Raises:
        Refused: tensors that cannot be summed, or that differ between ranks; on every rank.
        Lost: a rank ended, or did not take part within `timeout`.

    Examples:
        >>> import regard.parallel as rp
        >>> # in each of several processes, after loss.backward():
        >>> # rp.sum_over_ranks([each.grad for each in model.parameters()])
    """
    add(processes(group, timeout), list(tensors), "parallel.sum_over_ranks")


def add(transport: Transport, tensors: list[torch.Tensor], step: str) -> None:
    """The same over any transport. step: what is summed, in words, for errors."""
    import torch

    def checked() -> tuple[None, dict[str, str]]:
        for each in tensors:
            if not isinstance(each, torch.Tensor) or not each.is_floating_point() or each.device.type != "cpu":
                given = f"{each.dtype} on {each.device}" if isinstance(each, torch.Tensor) else type(each).__name__
                raise refuse(step, "this cannot be summed", given, "floating-point tensors on the CPU", FIX)
        shapes = [(list(each.shape), str(each.dtype).removeprefix("torch.")) for each in tensors]
        return None, {"the tensors": ", ".join(f"{dtype} {shape}" for shape, dtype in shapes)}

    def added(flat: torch.Tensor) -> torch.Tensor:
        """The sum of a tensor of one axis: each rank adds one part of it."""
        ranks, numbers = transport.ranks, read_array(flat, step)
        parts = np.split(numbers, [len(flat) * rank // ranks for rank in range(1, ranks)])
        own = parts[transport.rank]
        total = torch.zeros(len(own), dtype=torch.float64)
        for (part,) in swap_arrays(transport, f"{step}: parts", [[each] for each in parts], [[own]] * ranks)():
            total += as_tensor(part)
        mine = read_array(total.to(flat.dtype), step)
        sums = swap_arrays(transport, f"{step}: sums", [[mine]] * ranks, [[each] for each in parts])()
        return torch.cat([as_tensor(part) for (part,) in sums])

    agreed(transport, step, checked)
    with torch.no_grad():
        for dtype in dict.fromkeys(each.dtype for each in tensors):
            alike = [each for each in tensors if each.dtype == dtype]
            found = added(torch.cat([each.detach().reshape(-1) for each in alike]))
            for each, part in zip(alike, found.split([each.numel() for each in alike]), strict=True):
                each.copy_(part.view(each.shape))
