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

END = 2**61  # beyond every block: what follows the last one


def stack_entries(blocks: int) -> int:
    """The largest number of partial sums on the stack of a task that visits at most this many blocks."""
    return max(blocks - 1, 0).bit_length() + 1


def merge_complete(code: Code, levels, this, following, merge: Callable):
    """Merges the partial sums that become one subtree when every block before `following` is known.

    levels: bit i is set if the stack has an entry of level i, without the new entry, that of block `this`, which is on
    top of the others. merge(place): merges entry place + 1 into entry place. Returns `levels` with the new entry; the
    number of entries is the number of its bits.
    """
    one, subtree = code.index(1), _subtree(code, this, following)
    below = code.sub(subtree, one)
    depth = code.intrinsic("ctpop", levels)
    with code.loop(code.index(0), code.intrinsic("ctpop", code.and_(levels, below))) as loop:
        merge(code.sub(code.sub(depth, one), loop.index))
    return code.or_(code.and_(levels, code.not_(below)), subtree)


def merge_all(code: Code, count, merge: Callable) -> None:
    """Merges the partial sums of blocks 0 … count - 1, each of which has its own place, into that of block 0.

    merge(left, right): merges the subtree that begins with block `right` into the one that begins with block `left`.
    """
    last, one = code.sub(count, code.index(1)), code.index(1)
    with code.loop(code.index(0), count) as block:
        this = block.index
        following = code.select(code.icmp_signed("==", this, last), code.index(END), code.add(this, one))
        below = code.sub(_subtree(code, this, following), one)
        # Without gaps there is a waiting subtree for each bit that `this` has, and it begins where that bit ends.
        with code.loop(code.index(0), code.intrinsic("ctpop", code.and_(this, below)), 1, [this]) as loop:
            right = loop.carried[0]
            left = code.and_(right, code.sub(right, one))
            merge(left, right)
            loop.carry(left)


def _subtree(code: Code, this, following):
    """The number of blocks of the subtree that is complete between two blocks: the highest bit in which they differ.

    Blocks are counted from -END here, so that negative ones differ from others in a bit that is below that of END.
    """
    differ = code.xor(*(code.add(block, code.index(END)) for block in (this, following)))
    leading = code.intrinsic("ctlz", differ, ir.Constant(I1, 1))
    return code.shl(code.index(1), code.sub(code.index(63), leading))
