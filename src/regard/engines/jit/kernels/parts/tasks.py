"""A kernel as a function, and the tasks that the threads of a call take from one counter."""

from __future__ import annotations

from contextlib import contextmanager

from llvmlite import ir

from ...code.arguments import Block
from ...code.ir import I64, PTR, Code

__all__ = ["begun", "each_task"]


def begun(name: str) -> tuple[ir.Module, Code, tuple]:
    """The module of a kernel `name(arguments, scratch, budget)`, its code so far (none), and its three parameters."""
    module = ir.Module("regard")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64]), name)
    function.attributes.add("nounwind")
    for argument in function.args[:2]:
        argument.add_attribute("noalias")
    return module, Code(function.append_basic_block("entry")), function.args


@contextmanager
def each_task(code: Code, arg: Block, budget):
    """`for number in tasks`: until none is left, or the budget is used up."""
    counter = arg.address("next")

    def take(left):
        # With nothing left in the budget nothing is taken: what is taken must be done.
        one = code.select(code.icmp_signed(">", left, code.index(0)), code.index(1), code.index(0))
        return code.atomic_rmw("add", counter, one, "monotonic")

    def goes_on(number, left):
        return code.and_(code.icmp_signed("<", number, arg["tasks"]), code.icmp_signed(">", left, code.index(0)))

    with code.repeat(goes_on, [take(budget), budget]) as taken:
        number, left = taken.carried
        yield number
        left = code.sub(left, code.index(1))
        taken.carry(take(left), left)
