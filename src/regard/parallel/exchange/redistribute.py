"""Parts of an array go to other ranks, and their gradients come back.

A redistribution is a list of what each rank sends and where it puts what it receives. Where a part goes to several
ranks, its gradient is the sum of theirs, in the order of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...common.arrays import as_tensor, is_tensor, read_array
from .transport import Transport, swap_arrays


class Redistribution(NamedTuple):
    """For arrays (B, heads, tokens, depth): take[t] is what rank t gets of this rank's array, put[s] where what comes
    from rank s goes in the result; each (heads, tokens), a slice or an array of indices. shape: (heads, tokens) before
    and after. overlaps: whether a part goes to several ranks.
    """

    transport: Transport
    step: str
    take: Sequence[tuple[slice, Any]]
    put: Sequence[tuple[slice, Any]]
    shape: tuple[tuple[int, int], tuple[int, int]]
    overlaps: bool = False

    def forward(self, array: np.ndarray) -> np.ndarray:
        """The array after the move."""
        return self._exchanged(self.step, array, self.take, self.put, self.shape[1], add=False)

    def backward(self, array: np.ndarray) -> np.ndarray:
        """The gradient before the move, of that after it."""
        step = f"gradient of {self.step}"
        if not self.overlaps:
            return self._exchanged(step, array, self.put, self.take, self.shape[0], add=False)
        wide: Any = np.result_type(array.dtype, np.float32)
        return self._exchanged(step, array.astype(wide), self.put, self.take, self.shape[0], add=True).astype(
            array.dtype
        )

    def _exchanged(
        self, step: str, array: np.ndarray, take: Sequence, put: Sequence, shape: tuple[int, int], *, add: bool
    ) -> np.ndarray:
        found = np.zeros((len(array), *shape, array.shape[3]), array.dtype)
        places = [(slice(None), *each) for each in put]
        outgoing = [[array[(slice(None), *each)]] for each in take]
        received = swap_arrays(self.transport, step, outgoing, [[found[place]] for place in places])()
        for place, (part,) in zip(places, received, strict=True):
            if add:
                found[place] += part
            else:
                found[place] = part
        return found


def redistribute(move: Redistribution, value: Any, *, back: bool = False) -> Any:
    """An array or tensor (…, heads, tokens, depth) after a redistribution, or before it (`back`); autograd takes
    gradients the other way. Every rank calls it, and its backward pass, in the same order.
    """
    if not is_tensor(value):
        return _moved(move, value, back)
    from .tensors import linear

    return linear(value, lambda each: _moved(move, each, back), lambda gradient: _moved(move, gradient, not back))


def _moved(move: Redistribution, value: Any, back: bool) -> Any:
    array = read_array(value, "parallel")
    flat = array.reshape(int(np.prod(array.shape[:-3])), *array.shape[-3:])
    found = move.backward(flat) if back else move.forward(flat)
    found = found.reshape(*array.shape[:-3], *found.shape[1:])
    return as_tensor(found) if is_tensor(value) else found
