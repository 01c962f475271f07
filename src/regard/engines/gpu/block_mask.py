"""FlexAttention's BlockMask from a Plan, without evaluating the mask on all Q · K pairs.

A partial block at the edge of the matrix counts as mixed, as in torch's `create_block_mask`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch.nn.attention.flex_attention import BlockMask

from ...common.caching import Memo
from ...language.problem import Problem
from ..plan import Plan, plan
from .device_call import on_device

SIZE = 128  # rows and keys of a block: what FlexAttention's kernels are tuned for

Lists = tuple[torch.Tensor, torch.Tensor]


class Blocks(NamedTuple):
    """Per tile of rows the blocks of keys that it visits, and per block of keys the tiles that visit it; mixed and full
    ones separately.
    """

    keys: Lists
    full_keys: Lists
    rows: Lists
    full_rows: Lists


_known: Memo[Blocks] = Memo(16)


def block_mask(problem: Problem, device: torch.device, mask: Callable) -> BlockMask:
    """The plan of the problem as a BlockMask on the device. mask: `mask(batch, head, row, key)`, rows counted from 0.

    >>> import numpy as np
    >>> from regard.language.masks import causal
    >>> q = np.zeros((384, 8), np.float32)
    >>> found = block_mask(Problem.of(q, q, None, mask=causal()), torch.device("cpu"), lambda b, h, q, kv: q >= kv)
    >>> found.kv_num_blocks.flatten().tolist(), found.full_kv_num_blocks.flatten().tolist()
    ([1, 1, 1], [0, 1, 2])
    """
    rest = (*problem.dims.values(), problem.query_start.tobytes(), str(device))
    found = _known((problem.mask,), rest, lambda: _blocks(plan(problem, SIZE, SIZE), device))
    (count, index), (full_count, full_index), (row_count, row_index), (full_row_count, full_row_index) = found
    return BlockMask(
        seq_lengths=(problem.dims["Q"], problem.dims["K"]),
        kv_num_blocks=count,
        kv_indices=index,
        full_kv_num_blocks=full_count,
        full_kv_indices=full_index,
        q_num_blocks=row_count,
        q_indices=row_index,
        full_q_num_blocks=full_row_count,
        full_q_indices=full_row_index,
        BLOCK_SIZE=(SIZE, SIZE),
        mask_mod=mask,
    )


def _blocks(found: Plan, device: torch.device) -> Blocks:
    """The runs of the plan, block by block."""
    B, H, Q, K = (found.dims[name] for name in "BHQK")
    tiles, units = -(-Q // SIZE), -(-K // SIZE)
    lead = B if found.per_batch else 1, H if found.per_head else 1
    first, last, mixed = found.runs.astype(np.int64).T
    begin, end = first // SIZE, -(-last // SIZE)
    count = end - begin
    unit = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count - begin, count)
    tile = np.repeat(found.tile_of, count)
    some = np.repeat(mixed, count) == 1
    if K % SIZE:
        some |= unit == units - 1
    if Q % SIZE:
        some |= tile % tiles == tiles - 1
    group, row = np.divmod(tile, tiles)

    def listed(chosen: np.ndarray, line: np.ndarray, other: np.ndarray, lines: int, others: int) -> Lists:
        """The number of chosen blocks on each line, and their indices in ascending order."""
        place = group[chosen] * lines + line[chosen]
        order = np.argsort(place, kind="stable")
        place, which = place[order], other[chosen][order]
        counts = np.bincount(place, minlength=lead[0] * lead[1] * lines)
        index = np.zeros((len(counts), others), np.int32)
        index[place, np.arange(len(place)) - np.repeat(np.cumsum(counts) - counts, counts)] = which
        return tuple(
            on_device(torch.from_numpy(part.astype(np.int32).reshape(*lead, *sizes)), device)
            for part, sizes in ((counts, (lines,)), (index, (lines, others)))
        )

    return Blocks(
        *(
            listed(chosen, *sides)
            for sides in ((row, unit, tiles, units), (unit, row, units, tiles))
            for chosen in (some, ~some)
        )
    )
