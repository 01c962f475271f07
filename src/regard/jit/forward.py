"""The forward kernel: streaming softmax with queries in the lanes ("transposed flash").

    out[row] = Σ_key exp(s[row, key] - lse[row]) · v[key],    s = score(scale · q[row]·k[key]) where mask, else -inf

A task is a tile of W query rows of one head. Its queries are transposed once, Qᵀ[depth][lane], and then for each block of keys:

    Sᵀ[key][lane]  =  K · Qᵀ          products.py    one key element, broadcast, times vectors of queries
    score and mask                    rules.py       on lanes; a full block does not mention the mask
    m, α, p, l                        softmax.py     the running softmax; everything is vertical
    Oᵀ[depth][lane] = α Oᵀ + Vᵀ · P   products.py    one value element, broadcast, times vectors of probabilities

What is read: the rows of q, k and v that the plan visits, in place, with any strides, and nothing beyond them. Blocks begin at
multiples of BLOCK keys, and a row sums its keys one after the other, so its bits do not depend on its neighbours, on the batch,
or on the threads.

0 · NaN is NaN, so a value that a row may not see could reach it in a mixed block. No check is paid for beforehand: a tile whose
output is not finite is done once more, carefully, with those products left out.
"""

from __future__ import annotations

from llvmlite import ir

from ..expr import Const, Expr, Table
from .arguments import Block
from .ir import I32, I64, PTR, Code
from .products import add_values, add_values_carefully, multiply_keys
from .rules import Rules
from .softmax import Running
from .target import Target
from .tile import BLOCK, Specification, Tile

__all__ = ["write"]


def write(
    spec: Specification, target: Target, mask: Expr | None, score: Expr | None, constants: list[Const], tables: list[Table]
) -> ir.Module:
    """The kernel `forward(arguments, scratch, budget)` for a specification; the expressions must have its shape."""
    module = ir.Module("regard")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [PTR, PTR, I64]), "forward")
    function.attributes.add("nounwind")
    for argument in function.args[:2]:
        argument.add_attribute("noalias")
    code = Code(function.append_basic_block("entry"))
    arg = Block(code, function.args[0], constants, tables, spec.wide)
    tile = Tile(code, spec, target, arg, function.args[1])
    rules = Rules(code, tile, arg, mask, score, constants, tables, spec.wide)
    exponent, unit = (arg.factor(name, tile.lanes) for name in ("exponent", "unit"))
    run = Running(code, tile.rest, tile.type, tile.vectors, exponent, unit)
    _Forward(code, arg, tile, rules, run).tasks(function.args[2])
    code.ret_void()
    return module


class _Forward:
    """The loop nest, from the outside in."""

    def __init__(self, code: Code, arg: Block, tile: Tile, rules: Rules, run: Running):
        self.code, self.arg, self.tile, self.rules, self.run = code, arg, tile, rules, run

    def tasks(self, budget) -> None:
        """Tiles are taken from a shared counter until none is left, or the budget is used up."""
        code, counter = self.code, self.arg.address("next")

        def take(left):
            # With nothing left in the budget nothing is taken: what is taken must be done.
            return code.atomic_rmw("add", counter, code.select(code.icmp_signed(">", left, code.index(0)), code.index(1),
                                                               code.index(0)), "monotonic")  # fmt: skip

        def goes_on(number, left):
            return code.and_(code.icmp_signed("<", number, self.arg["tasks"]), code.icmp_signed(">", left, code.index(0)))

        with code.repeat(goes_on, [take(budget), budget]) as taken:
            number, left = taken.carried
            self.task(number)
            left = code.sub(left, code.index(1))
            taken.carry(take(left), left)

    def task(self, number) -> None:
        """Which head and rows a task is, and what the plan says about its keys."""
        code, arg, tile = self.code, self.arg, self.tile
        pair, place = code.sdiv(number, arg["tiles"]), code.srem(number, arg["tiles"])
        b, h = code.sdiv(pair, arg["H"]), code.srem(pair, arg["H"])
        group = code.add(code.mul(b, arg["plan_batch"]), code.mul(h, arg["plan_head"]))
        tiles_before = code.mul(group, arg["tiles"])
        order = code.at(arg.address("order"), code.mul(code.add(tiles_before, place), code.index(4)))
        which = code.sext(code.get(order, I32, 4), I64)
        offsets = code.at(arg.address("offsets"), code.mul(code.add(tiles_before, which), code.index(8)))
        runs = code.get(offsets, I64, 8), code.get(code.at(offsets, 8), I64, 8)
        row = code.mul(which, code.index(tile.spec.rows))
        tile.enter(b, h, row, code.smaller_int(code.sub(arg["Q"], row), code.index(tile.spec.rows)))
        tile.load_queries()
        start = code.get(code.at(arg.address("start"), code.mul(b, code.index(8))), I64, 8)
        self.rules.open(b, h, code.add(start, row))
        lse = code.at(arg.address("lse"), code.mul(code.add(code.mul(pair, arg["Q"]), row), code.index(4)))
        # A second, careful attempt only where the first is not finite.
        first, attempts = code.index(0), code.index(1)
        with code.repeat(lambda attempt, last: code.icmp_signed("<", attempt, last), [first, attempts]) as tried:
            attempt = tried.carried[0]
            self.careful = code.icmp_signed("==", attempt, code.index(1))
            self.run.begin()
            tile.clear_output()
            self.runs(*runs)
            finite = self.finish(h, lse)
            again = code.and_(code.not_(finite), code.icmp_signed("==", attempt, code.index(0)))
            tried.carry(code.add(attempt, code.index(1)), code.select(again, code.index(2), code.index(1)))

    def runs(self, first_run, last_run) -> None:
        """The runs of the plan, cut at multiples of BLOCK; what falls into the same block is done together."""
        code = self.code

        def read(run):
            at = code.at(self.arg.address("runs"), code.mul(run, code.index(12)))
            return [code.sext(code.get(code.at(at, 4 * part), I32, 4), I64) for part in range(3)]

        with code.when(code.icmp_signed("<", first_run, last_run)):
            carry = [first_run, *read(first_run)]
            with code.repeat(lambda run, *_: code.icmp_signed("<", run, last_run), carry) as taken:
                run, first, last, mixed = taken.carried
                border = code.mul(code.add(code.sdiv(first, code.index(BLOCK)), code.index(1)), code.index(BLOCK))

                def joins(run, last, mixed):
                    """Whether this run ends before the border and the following one begins before it."""
                    following = code.add(run, code.index(1))
                    exists = code.icmp_signed("<", following, last_run)
                    begins = read(code.select(exists, following, run))[0]
                    both = code.and_(code.icmp_signed("<", last, border), code.icmp_signed("<", begins, border))
                    return code.and_(exists, both)

                with code.repeat(joins, [run, last, mixed]) as joined:
                    following = code.add(joined.carried[0], code.index(1))
                    further = read(following)
                    # Unless both parts are full and touch, the mask decides.
                    touch = code.icmp_signed("==", further[0], joined.carried[1])
                    both = code.or_(joined.carried[2], further[2])
                    joined.carry(following, further[1], code.select(touch, both, code.index(1)))
                run, last, mixed = joined.result
                end = code.smaller_int(last, border)
                self.block(first, code.sub(end, first), code.icmp_signed("!=", mixed, code.index(0)))
                used_up = code.icmp_signed("<=", last, border)
                following = code.add(run, code.index(1))
                exists = code.and_(used_up, code.icmp_signed("<", following, last_run))
                fresh = read(code.select(exists, following, run))
                rest = [end, last, mixed]
                taken.carry(
                    code.select(used_up, following, run),
                    *(code.select(used_up, new, old) for new, old in zip(fresh, rest, strict=True)),
                )

    def block(self, first, count, mixed) -> None:
        """Some keys of one block: scores, running softmax, output."""
        code, tile, rules, run = self.code, self.tile, self.rules, self.run
        run.begin_block()
        multiply_keys(code, tile, run, first, count)
        if rules.mask is not None:
            with code.if_else(mixed) as (then, otherwise):
                with then:
                    rules.apply(run, first, count, masked=True)
                with otherwise:
                    if rules.score is not None:
                        rules.apply(run, first, count, masked=False)
        elif rules.score is not None:
            rules.apply(run, first, count, masked=False)
        run.end_block()
        with code.if_else(self.careful) as (then, otherwise):
            with then:
                run.exponentiate(tile.s, tile.row_bytes, count, mark=True)
                add_values_carefully(code, tile, run, first, count)
            with otherwise:
                run.exponentiate(tile.s, tile.row_bytes, count, mark=False)
                add_values(code, tile, run, first, count)

    def finish(self, h, lse):
        """out = Oᵀ / l, and lse; true if every lane's output is finite."""
        code, tile, arg = self.code, self.tile, self.arg
        self.run.add_sinks(arg.address("sinks"), code.mul(h, arg["sink_count"]), arg["sink_count"])
        zero = code.number(0.0, tile.type)
        with code.loop(code.index(0), code.index(tile.spec.E), 1, [zero] * tile.vectors) as depth:
            place = tile.place(tile.o, depth.index)
            checks = []
            for number, check in enumerate(depth.carried):
                value = self.run.normalized(tile.get(place, number), number)
                tile.put(value, place, number)
                checks.append(code.fma(value, zero, check))  # 0, or NaN once a value is not finite
            depth.carry(*checks)
        tile.store_output()
        self.run.store_lse(lse, tile.count)
        total = depth.result[0]
        for check in depth.result[1:]:
            total = code.fadd(total, check)
        finite = code.bitcast(code.fcmp_ordered("==", total, zero), ir.IntType(tile.lanes))
        return code.icmp_unsigned("==", finite, ir.Constant(ir.IntType(tile.lanes), -1))
