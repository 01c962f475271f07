"""The function of a kernel, and the loop over tasks, which the threads of a call take from a shared counter."""

from __future__ import annotations

from contextlib import contextmanager

from llvmlite import ir

from ...code.arguments import Block
from ...code.ir import I64, PTR, Code
from ...run.pool import PAST


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
