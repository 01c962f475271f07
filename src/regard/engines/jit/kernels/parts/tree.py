"""The tree of partial sums: partial sums of consecutive blocks of positions are merged in a binary tree.

    blocks      0   1   2   3   4   5   6   7        two neighbours of a level are merged into one of the next level
    level 1      0–1     2–3     4–5     6–7
    level 2          0–3             4–7

The tree is fixed over absolute positions, and merging with an empty sum is exact, so the result does not depend on
where the positions are computed, in how many calls, or which blocks are empty. A task visits its blocks in ascending
order and keeps the partial sums that are not yet merged on a stack, the oldest first: never more than one per level.
"""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from ...code.ir import I1, Code

__all__ = ["END", "merge_complete", "stack_entries"]

END = 2**62  # beyond every block: what follows the last one


def stack_entries(blocks: int) -> int:
    """The largest number of partial sums on the stack of a task that visits at most this many blocks."""
    return max(blocks - 1, 0).bit_length() + 1


def merge_complete(code: Code, levels, this, following, merge: Callable):
    """Merges the partial sums that become one subtree when every block before `following` is known.

    levels: bit i is set if the stack has an entry of level i, without the new entry, that of block `this`, which is on
    top of the others. merge(place): merges entry place + 1 into entry place. Returns `levels` with the new entry; the
    number of entries is the number of its bits.
    """
    # The highest bit in which the two blocks differ is the level of the subtree that ends between them.
    differ = code.xor(this, following)
    top = code.sub(code.index(63), code.intrinsic("ctlz", differ, ir.Constant(I1, 1)))
    one = code.index(1)
    bit = code.shl(one, top)
    below = code.sub(bit, one)
    depth = code.intrinsic("ctpop", levels)
    with code.loop(code.index(0), code.intrinsic("ctpop", code.and_(levels, below))) as loop:
        merge(code.sub(code.sub(depth, one), loop.index))
    return code.or_(code.and_(levels, code.not_(below)), bit)
