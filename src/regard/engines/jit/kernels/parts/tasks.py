"""The function of a kernel, the loop over tasks, which the threads of a call take from a shared counter, and the binary
tree in which partial sums are merged.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager

from llvmlite import ir

from ...code.arguments import Block
from ...code.ir import I1, I64, PTR, Code
from ...pool import PAST


def begun(name: str) -> tuple[ir.Module, Code, tuple]:
    """The module of a kernel `name(arguments, scratch, budget)`, a builder for its body, and its three parameters."""
    module = ir.Module("regard")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64]), name)
    function.attributes.add("nounwind")
    for argument in function.args[:2]:
        argument.add_attribute("noalias")
    return module, Code(function.append_basic_block("entry")), function.args


def going_on(code: Code, arg: Block):
    """Whether the call is not to end: an interrupt sets the counter to PAST. For loops over many keys in a task."""
    counter = code.load_atomic(arg.address("next"), "monotonic", 8, typ=I64)
    return code.icmp_signed("<", counter, PAST)


@contextmanager
def each_task(code: Code, arg: Block, budget):
    """`for number in tasks`: until no task is left, or the budget is used up."""
    counter = arg.address("next")

    def take(left):
        # No task is taken without budget, because a task that is taken must be computed.
        one = code.select(code.icmp_signed(">", left, 0), 1, 0)
        return code.atomic_rmw("add", counter, one, "monotonic")

    def continues(number, left):
        return code.and_(code.icmp_signed("<", number, arg["tasks"]), code.icmp_signed(">", left, 0))

    with code.repeat(continues, [take(budget), budget]) as taken:
        number, left = taken.carried
        yield number
        left = code.sub(left, 1)
        taken.carry(take(left), left)


# ---- the tree --------------------------------------------------------------------------------------------------------

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
    subtree = _subtree(code, this, following)
    below = code.sub(subtree, 1)
    depth = code.intrinsic("ctpop", levels)
    with code.loop(0, code.intrinsic("ctpop", code.and_(levels, below))) as loop:
        merge(code.sub(code.sub(depth, 1), loop.index))
    return code.or_(code.and_(levels, code.not_(below)), subtree)


def merge_all(code: Code, count, merge: Callable) -> None:
    """Merges the partial sums of blocks 0 … count - 1, each of which has its own place, into that of block 0.

    merge(left, right): merges the subtree that begins with block `right` into the one that begins with block `left`.
    """
    last = code.sub(count, 1)
    with code.loop(0, count) as block:
        this = block.index
        following = code.select(code.icmp_signed("==", this, last), END, code.add(this, 1))
        below = code.sub(_subtree(code, this, following), 1)
        # Without gaps there is a waiting subtree for each bit that `this` has, and it begins where that bit ends.
        with code.loop(0, code.intrinsic("ctpop", code.and_(this, below)), 1, [this]) as loop:
            right = loop.carried[0]
            left = code.and_(right, code.sub(right, 1))
            merge(left, right)
            loop.carry(left)


def _subtree(code: Code, this, following):
    """The number of blocks of the subtree that is complete between two blocks: the highest bit in which they differ.

    Blocks are counted from -END here, so that negative ones differ from others in a bit that is below that of END.
    """
    differ = code.xor(*(code.add(block, END) for block in (this, following)))
    leading = code.intrinsic("ctlz", differ, ir.Constant(I1, 1))
    return code.shl(1, code.sub(63, leading))
