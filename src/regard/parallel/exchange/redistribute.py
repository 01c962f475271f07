"""Parts of an array go to other ranks, and their gradients come back.

A redistribution is a list of what each rank sends and where it puts what it receives. Where a part goes to several
ranks, its gradient is the sum of theirs, in the order of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ...common.arrays import as_tensor, is_tensor, read_array
from .transport import Transport, sparse, swap_arrays


class Redistribution(NamedTuple):
    """For arrays (B, heads, tokens, depth): take[t] is what rank t gets of this rank's array, put[s] where what comes
    from rank s goes in the result; each has places (heads, tokens), slices or arrays of indices. name: what goes, in
    words. shape: (heads, tokens) before and after. overlaps: whether a part goes to several ranks.
    """

    transport: Transport
    name: str
    take: Sequence[Sequence[tuple[slice, Any]]]
    put: Sequence[Sequence[tuple[slice, Any]]]
    shape: tuple[tuple[int, int], tuple[int, int]]
    overlaps: bool = False

    def exchange(self, step: str, array: np.ndarray, *, back: bool = False) -> np.ndarray:
        """The array after the redistribution; or before it (`back`), where several parts are added in the order of the
        ranks. step: in words, for errors.
        """
        take, put, shape = (self.put, self.take, self.shape[0]) if back else (self.take, self.put, self.shape[1])
        add = back and self.overlaps
        wide: Any = np.result_type(array.dtype, np.float32) if add else array.dtype
        found = sparse((len(array), *shape, array.shape[3]), np.dtype(wide))
        targets = [[(slice(None), *place) for place in places] for places in put]
        outgoing = [[array[(slice(None), *place)].astype(wide, copy=False) for place in places] for places in take]
        like = [[found[place] for place in places] for places in targets]
        for places, arrays in zip(targets, swap_arrays(self.transport, step, outgoing, like)(), strict=True):
            for place, part in zip(places, arrays, strict=True):
                found[place] = found[place] + part if add else part
        return found.astype(array.dtype, copy=False)


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
    found = move.exchange(f"gradient of {move.name}" if back else move.name, flat, back=back)
    found = found.reshape(*array.shape[:-3], *found.shape[1:])
    return as_tensor(found) if is_tensor(value) else found
