"""The kernel of partial results: merges those of consecutive keys as a binary tree, and divides the total.

    m = max(m₁, m₂)    l = a l₁ + b l₂    O = a O₁ + b O₂    a = 2**(exponent · (m₁ - m)), b likewise
    out = O / l        lse = m + ln l     with sinks in l

A task is as many rows as a vector has lanes. The operations and their order are those of the forward kernel, number by
number, so merged parts are bit-identical to a single call.
"""

from __future__ import annotations

from llvmlite import ir

from ..code.arguments import Block
from ..code.formats import Format
from ..code.ir import Code, vector
from ..code.target import Target
from .parts.softmax import Running, merged
from .parts.tasks import begun, each_task, merge_all

SLOTS = (
    "next", "tasks", "parts", "rows", "room", "E", "maximum", "total", "values", "exponent",
    "out", "lse", "unit", "sinks", "sink_count", "Q", "H",
)  # fmt: skip


def lanes_of(dtype: str, target: Target) -> int:
    """Rows of a task."""
    return target.lanes(Format(dtype, target).size)


def scratch_bytes(dtype: str, target: Target) -> int:
    """Working memory of one thread: the rows of the softmax, and two rows of factors."""
    return (len(Running.ROWS) + 2) * lanes_of(dtype, target) * Format(dtype, target).size


def write(dtype: str, target: Target) -> ir.Module:
    """The kernel `merge(arguments, scratch, budget)` for results of a dtype. Its slots (`SLOTS`):

    parts: their number · rows: R · room: R rounded up to whole tasks · maximum, total (parts, room) and values (parts,
    R, E) in the dtype of sums, merged in place into part 0 · out (R, E) in the dtype and lse (R,), or 0 for no division
    · exponent, unit: as `Running` has them · sinks (H, sink_count), Q, H: a row is that of head (row / Q) % H.
    """
    module, code, (arguments, scratch, budget) = begun("merge")
    kernel = _Merge(code, Format(dtype, target), target, Block(code, arguments, [], [], True, SLOTS), scratch)
    with each_task(code, kernel.arg, budget) as number:
        kernel.task(number)
    code.ret_void()
    return module


class _Merge:
    def __init__(self, code: Code, form: Format, target: Target, arg: Block, scratch):
        self.code, self.form, self.arg = code, form, arg
        self.lanes, self.size = target.lanes(form.size), form.size
        self.type = vector(form.real, self.lanes)
        exponent, unit = (arg.factor(name, self.type) for name in ("exponent", "unit"))
        self.run = Running(code, scratch, self.type, 1, exponent, unit)
        self.factors = code.at(scratch, len(Running.ROWS) * self.lanes * self.size)

    def task(self, number) -> None:
        """The rows of a task: all parts merged, and divided if the caller has an array for the result."""
        code, arg = self.code, self.arg
        self.first = code.mul(number, self.lanes)
        self.count = code.smaller_int(code.sub(arg["rows"], self.first), self.lanes)
        merge_all(code, arg["parts"], self.merge)
        with code.when(code.icmp_signed("!=", arg["out"], 0)):
            self.divide()

    def softmax(self, name: str, part):
        """The address of m or l of the rows, in a part."""
        code = self.code
        at = code.add(code.mul(part, self.arg["room"]), self.first)
        return self.arg.at(name, at, self.size)

    def values(self, part, row):
        """The address of a row of O."""
        code, arg = self.code, self.arg
        at = code.add(code.mul(part, arg["rows"]), code.add(self.first, row))
        return arg.at("values", code.mul(at, arg["E"]), self.size)

    def merge(self, left, right) -> None:
        """Merges two parts into the first."""
        code = self.code
        states = [
            [code.get(self.softmax(name, part), self.type, self.size) for name in ("maximum", "total")]
            for part in (left, right)
        ]
        maximum, total, *factors = merged(code, states[0], states[1], self.run.exponent)
        code.put(maximum, self.softmax("maximum", left), self.size)
        code.put(total, self.softmax("total", left), self.size)
        for row, factor in enumerate(factors):
            code.put(factor, code.at(self.factors, row * self.lanes * self.size), self.size)
        with code.loop(0, self.count) as row:
            a, b = (self.number(self.factors, part, row.index) for part in range(2))
            here, there = self.values(left, row.index), self.values(right, row.index)

            def add(place, lanes: int, a=a, b=b, here=here, there=there):
                first, second = (code.get(code.at(at, place), vector(self.form.real, lanes)) for at in (here, there))
                before = code.fmul(first, code.splat(a, lanes))
                code.put(code.fma(second, code.splat(b, lanes), before), code.at(here, place))

            self.each_depth(add)

    def number(self, base, row: int, lane):
        """A lane of a row of lanes in working memory."""
        code = self.code
        offset = code.mul(code.add(row * self.lanes, lane), self.size)
        return code.get(code.at(base, offset), self.form.real, self.size)

    def each_depth(self, do) -> None:
        """do(offset in bytes, lanes) for every element of a row of O: vectors first, then single ones."""
        code, E = self.code, self.arg["E"]
        whole = code.mul(code.sdiv(E, self.lanes), self.lanes)
        for begin, end, lanes in ((0, whole, self.lanes), (whole, E, 1)):
            with code.loop(begin, end, lanes) as depth:
                do(code.mul(depth.index, self.size), lanes)

    def divide(self) -> None:
        """out and lse of the merged rows, in part 0."""
        code, arg, run = self.code, self.arg, self.run
        zero = code.index(0)
        run.restore(0, *(code.get(self.softmax(name, zero), self.type, self.size) for name in ("maximum", "total")))
        run.add_sinks(self.sink, arg["sink_count"])
        with code.loop(zero, self.count) as row:
            normalized = run.normalizer(row.index)
            source = self.values(zero, row.index)
            place = code.mul(code.add(self.first, row.index), arg["E"])
            target = arg.at("out", place, self.form.itemsize)

            def store(offset, lanes: int, normalized=normalized, source=source, target=target):
                value = normalized(code.get(code.at(source, offset), vector(self.form.real, lanes)))
                share = self.size // self.form.itemsize
                self.form.store(code, value, code.at(target, code.sdiv(offset, share)))

            self.each_depth(store)
        run.finish()
        at = code.mul(self.first, self.size)
        run.store("maximum", arg.at("lse", at), self.count)

    def sink(self, index, _: int):
        """A sink in every lane: that of the head of its row."""
        code, arg = self.code, self.arg
        found = []
        for lane in range(self.lanes):
            row = code.add(self.first, code.smaller_int(lane, code.sub(self.count, 1)))
            head = code.srem(code.sdiv(row, arg["Q"]), arg["H"])
            place = code.mul(code.add(code.mul(head, arg["sink_count"]), index), self.size)
            found.append(code.get(arg.at("sinks", place), self.form.real, self.size))
        return code.gathered(found)
