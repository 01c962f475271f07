"""The forward kernel: streaming softmax with queries in the lanes ("transposed flash").

    out[row] = Σ_key exp(s[row, key] - lse[row]) · v[key],    s = score(scale · q[row]·k[key]) where mask, else -inf

A task is a tile of W query rows. Its queries are transposed once, Qᵀ[depth][lane], and then for each block of keys:

    Sᵀ[key][lane]  =  K · Qᵀ          products.py    one key element, broadcast, times vectors of queries
    score and mask                    rules.py       on lanes; the mask is skipped in full blocks
    m, α, p, l                        softmax.py     the running softmax; no operations across lanes
    Oᵀ[depth][lane] = α Oᵀ + Vᵀ · P   products.py    one value element, broadcast, times vectors of probabilities

Keys are summed in pieces of PIECE, each starting from zero, and the pieces are merged in a binary tree over their
positions (tasks.py). In a call with few rows and many keys every piece is a separate task ("split"), and the thread
that finishes the last piece of a tile merges them: the same tree, so decoding is bit-identical to a prefill of the full
sequence. Blocks begin at multiples of BLOCK keys, and a row sums the keys of a piece sequentially, so its result does
not depend on other rows, the batch, or the number of threads.

The kernel reads only the rows of q, k and v that the plan visits, in place, with any strides.

0 · NaN is NaN, so a masked value could affect a row in a mixed block. There is a check only afterwards: a piece whose
output is not finite is computed again, carefully, without the products of masked pairs.
"""

from __future__ import annotations

from llvmlite import ir

from ....language.expr import Const, Expr, Table
from ..code.arguments import Block
from ..code.ir import I32, I64, Code
from ..code.target import Target
from .parts import few_rows
from .parts.dropout import Dropout
from .parts.panels import Keys, Values
from .parts.products import add_values, add_values_carefully
from .parts.rules import Rules
from .parts.softmax import Running, merged
from .parts.tasks import END, begun, each_task, going_on, merge_all, merge_complete, stack_entries
from .parts.tile import BLOCK, Memory, Specification, Tile, regions, state_bytes

# Keys per piece: enough to make merging cheap, few enough to distribute pieces over threads.
PIECE = 1024


def scratch_bytes(spec: Specification, target: Target, keys: int) -> int:
    """Working memory of one thread in a call over this many keys; the stack of partial results comes last."""
    entries = 0 if spec.split else stack_entries(-(-keys // PIECE))
    return Memory.total(regions(spec, target)) + entries * state_bytes(spec, target)


def write(
    spec: Specification,
    target: Target,
    mask: Expr | None,
    score: Expr | None,
    constants: list[Const],
    tables: list[Table],
) -> ir.Module:
    """The kernel `forward(arguments, scratch, budget)` for a specification; the expressions must have its shape."""
    module, code, (arguments, scratch, budget) = begun("forward")
    arg = Block(code, arguments, constants, tables, spec.wide)
    tile = Tile(code, spec, target, arg, Memory(code, scratch, regions(spec, target) | {"stack": 0}))
    rules = Rules(code, tile, mask, score)
    kernel = _Forward(code, arg, tile, rules)
    with each_task(code, arg, budget) as number:
        kernel.task(number)
    code.ret_void()
    return module


class _Forward:
    """The loop nest, from the outside in."""

    def __init__(self, code: Code, arg: Block, tile: Tile, rules: Rules):
        self.code, self.arg, self.tile, self.rules = code, arg, tile, rules
        exponent, unit = (arg.factor(name, tile.type) for name in ("exponent", "unit"))
        widest = tile.form.target.lanes(tile.size)
        self.run = Running(code, tile.memory["running"], tile.type, tile.vectors, exponent, unit, widest=widest)
        self.keys, self.values = Keys(code, tile), Values(code, tile)
        self.dropout = None
        if tile.spec.dropout:
            self.dropout = Dropout(code, tile.form.target, arg, tile.type, tile.vectors, tile.memory["dropout"])

    def task(self, number) -> None:
        """One task: finds its head, rows and runs of keys, then computes its pieces."""
        code, arg, tile = self.code, self.arg, self.tile
        split = tile.spec.split
        part = code.srem(number, arg["pieces"]) if split else None
        number = code.sdiv(number, arg["pieces"]) if split else number
        pair, place = code.sdiv(number, arg["tiles"]), code.srem(number, arg["tiles"])
        b, h = code.sdiv(pair, arg["heads"]), code.srem(pair, arg["heads"])
        group = code.add(code.mul(b, arg["plan_batch"]), code.mul(h, arg["plan_head"]))
        tiles_before = code.mul(group, arg["tiles"])
        order = arg.at("order", code.add(tiles_before, place), 4)
        which = code.sext(code.get(order, I32, 4), I64)
        offsets = arg.at("offsets", code.add(tiles_before, which), 8)
        runs = code.get(offsets, I64, 8), code.get(code.at(offsets, 8), I64, 8)
        row = code.mul(which, tile.spec.rows)
        tile.enter(b, h, row, code.smaller_int(code.sub(arg["rows"], row), tile.spec.rows))
        tile.load_queries()
        start = code.get(arg.at("start", b, 8), I64, 8)
        self.rules.open(b, h, start if tile.spec.folded else code.add(start, row))
        if self.dropout is not None:
            self.dropout.open(b, self.rules.heads, self.rules.queries)
        self.head = h
        self.rows_before = code.add(code.mul(pair, arg["rows"]), row)
        if split:
            self.one_piece(number, part, runs)
        else:
            self.all_pieces(runs)

    # pieces -----------------------------------------------------------------------------------------------------------

    def all_pieces(self, runs) -> None:
        """All pieces of a tile that have keys to visit, merged as soon as a subtree of them is complete."""
        code, arg, tile = self.code, self.arg, self.tile
        stack = tile.memory["stack"]

        def exists(run):
            return code.icmp_signed("<", run, runs[1])

        def entry(place):
            return code.at(stack, place, tile.state_bytes)

        def merge(place) -> None:
            self.merge(entry(place), entry(code.add(place, 1)))

        with code.when(code.not_(exists(runs[0]))):
            self.run.begin()
            tile.o = stack
            tile.clear(tile.o)
            self.keep_softmax()
        first = self.read_run(code.select(exists(runs[0]), runs[0], 0))[0]
        carry = [runs[0], code.sdiv(first, PIECE), 0]
        with code.repeat(lambda run, number, levels: code.and_(exists(run), going_on(code, arg)), carry) as loop:
            run, number, levels = loop.carried
            tile.o = entry(code.intrinsic("ctpop", levels))
            run = self.piece((run, runs[1]), code.mul(number, PIECE))
            self.keep_softmax()
            begins = code.sdiv(self.read_run(code.select(exists(run), run, 0))[0], PIECE)
            begins = code.larger_int(begins, code.add(number, 1))
            following = code.select(exists(run), begins, END)
            loop.carry(run, following, merge_complete(code, levels, number, following, merge))
        self.finish(stack)

    def keep_softmax(self) -> None:
        """Stores m and l of the piece after its Oᵀ."""
        for number in range(self.tile.vectors):
            for row, value in enumerate(self.run.state(number)):
                self.tile.put(value, self.tile.state_row(self.tile.o, row), number)

    def merge(self, left, right) -> None:
        """Merges two partial results; the first, of earlier keys, becomes that of both."""
        code, tile = self.code, self.tile
        factors = []
        for number in range(tile.vectors):
            first, second = ([tile.get(tile.state_row(at, row), number) for row in (0, 1)] for at in (left, right))
            maximum, total, *both = merged(code, first, second, self.run.exponent)
            factors.append(both)
            for row, value in enumerate((maximum, total)):
                tile.put(value, tile.state_row(left, row), number)
        with code.loop(0, tile.spec.E) as depth:
            place, other = tile.place(left, depth.index), tile.place(right, depth.index)
            for number, (a, b) in enumerate(factors):
                before = code.fmul(tile.get(place, number), a)
                tile.put(code.fma(tile.get(other, number), b, before), place, number)

    def one_piece(self, number, part, runs) -> None:
        """A piece, in the shared memory of its tile; the thread that ends the last one merges all, as a tree."""
        code, arg, tile = self.code, self.arg, self.tile
        begin = code.mul(code.mul(number, arg["pieces"]), tile.state_bytes)
        parts = arg.at("parts", begin)

        def entry(place):
            return code.at(parts, place, tile.state_bytes)

        tile.o = entry(part)
        self.piece(runs, code.mul(code.add(arg["first_piece"], part), PIECE))
        self.keep_softmax()
        left = arg.at("left", number, 8)
        before = code.atomic_rmw("sub", left, code.index(1), "acq_rel")
        with code.when(code.icmp_signed("==", before, 1)):
            merge_all(code, arg["pieces"], lambda first, second: self.merge(entry(first), entry(second)))
            self.finish(parts)

    def piece(self, runs, begin):
        """m, l and Oᵀ of the keys begin … begin + PIECE, with a second, careful attempt if the first is not finite.

        Returns the run that the next piece begins with.
        """
        code = self.code
        carry = [0, 1, runs[0]]
        with code.repeat(lambda attempt, attempts, _: code.icmp_signed("<", attempt, attempts), carry) as tried:
            attempt = tried.carried[0]
            self.careful = code.icmp_signed("==", attempt, 1)
            self.run.begin()
            self.tile.clear(self.tile.o)
            reached = self.runs(runs[0], runs[1], begin)
            again = code.and_(code.not_(self.finite()), code.icmp_signed("==", attempt, 0))
            tried.carry(code.add(attempt, 1), code.select(again, 2, 1), reached)
        return tried.result[2]

    def finite(self):
        """Whether Oᵀ is finite in every lane."""
        code, tile = self.code, self.tile
        zero = code.number(0.0, tile.type)
        with code.loop(0, tile.spec.E, 1, [zero] * tile.vectors) as depth:
            place = tile.place(tile.o, depth.index)
            # 0, or NaN once a value is not finite
            depth.carry(*(code.fma(tile.get(place, number), zero, check) for number, check in enumerate(depth.carried)))
        total = depth.result[0]
        for check in depth.result[1:]:
            total = code.fadd(total, check)
        every = ir.IntType(tile.lanes)
        return code.icmp_unsigned(
            "==", code.bitcast(code.fcmp_ordered("==", total, zero), every), ir.Constant(every, -1)
        )

    # keys -------------------------------------------------------------------------------------------------------------

    def read_run(self, run):
        code = self.code
        at = self.arg.at("runs", run, 12)
        return [code.sext(code.get(code.at(at, 4 * part), I32, 4), I64) for part in range(3)]

    def runs(self, first_run, last_run, begin):
        """The plan's runs within a piece, split at multiples of BLOCK; runs in the same block are computed together.

        Returns the first run that is not finished.
        """
        code = self.code
        end = code.add(begin, PIECE)

        def exists(run):
            return code.icmp_signed("<", run, last_run)

        def edge(run, part: int):
            return self.read_run(code.select(exists(run), run, 0))[part]

        with code.repeat(
            lambda run: code.and_(exists(run), code.icmp_signed("<=", edge(run, 1), begin)), [first_run]
        ) as skipped:
            skipped.carry(code.add(skipped.carried[0], 1))
        carry = [skipped.result[0], begin]

        def continues(run, reached):
            begins = code.larger_int(edge(run, 0), reached)
            return code.and_(exists(run), code.icmp_signed("<", begins, end))

        with code.repeat(continues, carry) as taken:
            run, reached = taken.carried
            first, last, mixed = self.read_run(run)
            first = code.larger_int(first, reached)
            border = code.mul(code.add(code.sdiv(first, BLOCK), 1), BLOCK)
            run, last, mixed = self.joined(run, last, mixed, border, last_run)
            stop = code.smaller_int(last, border)
            self.block(first, code.sub(stop, first), code.icmp_signed("!=", mixed, 0))
            # The rest of the run belongs to the next block.
            used_up = code.icmp_signed("<=", last, border)
            taken.carry(code.select(used_up, code.add(run, 1), run), stop)
        return taken.result[0]

    def joined(self, run, last, mixed, border, last_run):
        """A run joined with the following runs that begin before the border."""
        code = self.code

        def joins(run, last, mixed):
            """Whether this run ends before the border and the following one begins before it."""
            following = code.add(run, 1)
            exists = code.icmp_signed("<", following, last_run)
            begins = self.read_run(code.select(exists, following, run))[0]
            both = code.and_(code.icmp_signed("<", last, border), code.icmp_signed("<", begins, border))
            return code.and_(exists, both)

        with code.repeat(joins, [run, last, mixed]) as joined:
            following = code.add(joined.carried[0], 1)
            further = self.read_run(following)
            # The result is mixed unless both parts are full and adjacent.
            touch = code.icmp_signed("==", further[0], joined.carried[1])
            both = code.or_(joined.carried[2], further[2])
            joined.carry(following, further[1], code.select(touch, both, 1))
        return joined.result

    def block(self, first, count, mixed) -> None:
        """Some keys of one block: scores, running softmax, output."""
        code, tile, run = self.code, self.tile, self.run
        self.rules.scores(self.keys, run, first, count, mixed)
        run.end_block()
        self.values.stage(count)
        if self.dropout is not None:
            self.dropout.draw(first, count)
        steps = code.sdiv(code.add(count, 1), 2) if tile.form.pairs else count
        with code.if_else(self.careful) as (then, otherwise):
            usual = few_rows.add_values if tile.spec.few else add_values
            for branch, mark, add in ((then, True, add_values_carefully), (otherwise, False, usual)):
                with branch:
                    run.exponentiate(tile.s, count, mark, self.dropout, tile.form.pairs)
                    add(code, tile, run, self.values, steps)

    # the end ----------------------------------------------------------------------------------------------------------

    def finish(self, output) -> None:
        """out = Oᵀ / l, lse, and the sums that the backward pass needs; O, m and l themselves if partial.

        output: the Oᵀ, m and l of all keys.
        """
        code, tile, arg, run = self.code, self.tile, self.arg, self.run
        for number in range(tile.vectors):
            run.restore(number, *(tile.get(tile.state_row(output, row), number) for row in (0, 1)))
        if tile.spec.partial:
            tile.store_output(output, self.rows_before)
            self.store_sums(("maximum", "top"), ("total", "total"))
            return
        run.add_sinks(self.sink, arg["sink_count"])
        normalizers = run.normalizers()
        with code.loop(0, tile.spec.E) as depth:
            place = tile.place(output, depth.index)
            for number, normalized in enumerate(normalizers):
                tile.put(normalized(tile.get(place, number)), place, number)
        tile.store_output(output, self.rows_before)
        run.finish()
        self.store_sums(("maximum", "lse"), ("seen", "top"), ("total", "total"))

    def store_sums(self, *places: tuple[str, str]) -> None:
        """Stores rows of the softmax in the caller's arrays: pairs of a row and an array."""
        code, tile, arg = self.code, self.tile, self.arg
        offset = code.mul(self.rows_before, tile.size)
        for row, name in places:
            self.run.store(row, arg.at(name, offset), tile.count)

    def sink(self, index, number: int):
        """A sink in every lane: that of the head, or of the head of each lane if heads share a tile."""
        code, tile, arg = self.code, self.tile, self.arg

        def of(head):
            place = code.add(code.mul(head, arg["sink_count"]), index)
            return code.get(arg.at("sinks", place, tile.size), tile.real, tile.size)

        if not tile.spec.folded:
            return code.splat(of(self.head), tile.lanes)
        last, first = code.sub(tile.count, 1), code.mul(self.head, arg["group"])
        lanes = [code.smaller_int(number * tile.lanes + lane, last) for lane in range(tile.lanes)]
        return code.gathered([of(code.add(first, code.sdiv(lane, arg["Q"]))) for lane in lanes])
