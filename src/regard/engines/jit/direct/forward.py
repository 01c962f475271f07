"""Direct calls as machine code, the forward pass: `attend`, and what describes calls and tensors (table.py)."""

from __future__ import annotations

import math
from collections.abc import Callable

from llvmlite import ir

from ....common.dtypes import FLOATS
from ..code.arguments import FIXED
from ..code.formats import REALS, Format
from ..code.ir import F64, I32, I64, PTR, Callee
from ..code.target import host
from ..pool import ENDLESS, ENTERED, HELPERS, LEFT, PAST, PENDING, RUN
from .tensors import AXES, CONDITION, ENTRY, GROWTH, KEY, LAYOUT, TABLE, TENSORS, Reader


class Describe(Reader):
    """`describe`: the key of a call, then its key as a step of decoding, which is the same if it is none."""

    def write(self) -> None:
        self.describe()
        both = self.alloca(I64, 2 * KEY)
        self.external("memcpy", PTR, both, self.key, 8 * KEY)
        self.let_grow()
        self.external("memcpy", PTR, self.at(both, 8 * KEY), self.key, 8 * KEY)
        self.ret(self.external("PyBytes_FromStringAndSize", PTR, both, 2 * 8 * KEY))
        self.finish()


class Layout(Reader):
    """`layout`."""

    def write(self) -> None:
        self.unless(self.icmp_signed("!=", self.args[2], TENSORS))
        words = self.alloca(I64, TENSORS * (1 + LAYOUT))
        self.clear(words, TENSORS * (1 + LAYOUT))
        for number in range(TENSORS):
            self.read_into(words, number, self.at(words, 8 * (TENSORS + number * LAYOUT)), number)
        self.ret(self.external("PyBytes_FromStringAndSize", PTR, words, 8 * TENSORS * (1 + LAYOUT)))
        self.finish()


class Attend(Reader):
    """`attend`."""

    first = 0  # the argument that is q
    key_size = KEY  # words

    def __init__(self, function: ir.Function):
        super().__init__(function)
        self.arguments, self.raised = self.alloca(PTR, 4), self.alloca(I64)
        self.put(0, self.grows, 8)

    def write(self) -> None:
        self.unless(self.icmp_signed("==", self.known("count", I64), 0))
        self.conditions()
        self.describe()
        wanted = self.gradients_wanted()
        with self.when(self.not_(wanted)):
            self.let_grow()
        entry = self._found()
        with self.when(wanted):
            self._differentiate(entry)
        self._run(entry)
        self.finish()

    def conditions(self) -> None:
        """Nothing else looks at calls of torch: a condition is a function without arguments, or an attribute, and the
        object that it has to be.
        """
        first = self.known("first")
        with self.loop(0, self.known("conditions", I64)) as each:
            condition = self.at(first, each.index, 8 * len(CONDITION))
            thing, name, expected = (self.word(condition, number, PTR) for number in range(len(CONDITION)))
            with self.if_else(self.is_null(name)) as (calls, reads):
                with calls:
                    called, when_called = self.external("PyObject_CallNoArgs", PTR, thing), self.block
                with reads:
                    read, when_read = self.external("PyObject_GetAttr", PTR, thing, name), self.block
            found = self.phi(PTR)
            found.add_incoming(called, when_called)
            found.add_incoming(read, when_read)
            self.unless(self.not_(self.same(self.dropped(found), expected)))

    def _found(self):
        """The entry with this key: the search begins after the latest, because models repeat their calls in order."""
        count, latest, entries = (self.known(name, I64) for name in ("count", "latest", "entries"))

        def place(number):
            number = self.urem(self.add(self.add(latest, number), 1), count)
            return number, self.inttoptr(self.add(entries, self.mul(number, 8 * (KEY + len(ENTRY)))), PTR)

        number, entry = self.search(count, place, self.has_key)
        self.put_word(number, self.table, TABLE.index("latest"))
        return self.at(entry, 8 * KEY)

    def search(self, count, place: Callable, fits: Callable):
        """(number, entry) of the first of so many entries that fits, as `place` gives them; missed if none does."""
        found = self.append_basic_block("found")
        with self.loop(0, count) as each:
            number, entry = place(each.index)
            after = self.append_basic_block("after")
            self.cbranch(fits(entry), found, after)
            self.position_at_end(after)
        self.branch(self.missed)
        self.position_at_end(found)
        return number, entry

    def has_key(self, entry):
        return self.icmp_signed("==", self.compared(entry), 0)

    def compared(self, entry):
        """0 if the entry has this key."""
        return self.external("memcmp", I32, entry, self.key, 8 * self.key_size)

    def part(self, entry, name: str, type=I64):
        return self.word(entry, ENTRY.index(name), type)

    def gradients_wanted(self):
        """Whether a tensor requires them, and torch records."""
        found = self.alloca(I64)
        self.put(0, found, 8)
        for number in range(3):
            self._ask(self.given(number), found)
        with self.when(self.is_tensor(self.score)):
            self._ask(self.score, found)
        with self.when(self._marked(found)):
            enabled = self.dropped(self.external("PyObject_CallNoArgs", PTR, self.known("grad_enabled")))
            with self.when(self.same(enabled, self.known("false"))):
                self.put(0, found, 8)
        return self._marked(found)

    def _ask(self, tensor, found) -> None:
        wanted = self.dropped(self.external("PyObject_GetAttr", PTR, tensor, self.known("requires_grad")))
        with self.when(self.not_(self.same(wanted, self.known("false")))):
            self.put(1, found, 8)

    def _marked(self, place):
        return self.icmp_signed("!=", self.get(place, I64, 8), 0)

    def _differentiate(self, entry) -> None:
        """A call that needs gradients: `differentiate(q, k, v, mask, score)` returns the output."""
        differentiate = self.part(entry, "differentiate", PTR)
        self.unless(self.is_null(differentiate))
        with self.when(self.is_tensor(self.score)):
            own = self.alloca(I64)
            self.put(0, own, 8)
            self._ask(self.score, own)
            self.unless(self._marked(own))
        self.external("Py_IncRef", ir.VoidType(), differentiate)
        nothing = ir.Constant(PTR, None)
        out = self.external("PyObject_Vectorcall", PTR, differentiate, self.args[1], 5, nothing)
        self.external("Py_DecRef", ir.VoidType(), differentiate)
        self.ret(out)

    def _run(self, entry) -> None:
        """Makes the output, and runs the kernel here, or by `launch` if there is one."""
        out = self.made(self.part(entry, "shape", PTR), [])
        self._unchanged(entry, [out])
        addresses = [*(self.word(self.data, number) for number in range(3)), self.address_of(out, [out])]
        launch = self.part(entry, "launch", PTR)
        with self.when(self.icmp_unsigned("!=", self.ptrtoint(launch, I64), 0)):
            self._launch(launch, addresses, out)
        self.compute(entry, (*addresses, self.part(entry, "sums"), 0), [out])
        self.ret(out)

    def made(self, shape, drop: list, dtype=None):
        """A tensor like q, of a shape and dtype; if that raises, the call does."""
        self.put(self.given(self.first), self.arguments, 8)
        self.put(shape, self.at(self.arguments, 8), 8)
        names = ir.Constant(PTR, None)
        if dtype is not None:
            self.put(dtype, self.at(self.arguments, 16), 8)
            names = self.known("dtype")
        return self.called(shape, 2, names, drop)

    def called(self, shape, count: int, names, drop: list):
        """A new tensor for the arguments; the shape among them is held meanwhile."""
        self.external("Py_IncRef", ir.VoidType(), shape)
        found = self.external("PyObject_Vectorcall", PTR, self.known("empty"), self.arguments, count, names)
        self.external("Py_DecRef", ir.VoidType(), shape)
        self._failed(found, drop)
        return found

    def drop(self, objects: list) -> None:
        for each in objects:
            self.external("Py_DecRef", ir.VoidType(), each)

    def dropping(self, condition, objects: list) -> None:
        """The call is missed if the condition is true, and the objects are released."""
        with self.when(condition):
            self.drop(objects)
        self.unless(condition)

    def address_of(self, tensor, drop: list):
        """The address of a new tensor's first element."""
        self.dropping(self.read(tensor), drop)
        return self.data_of_tensor()

    def _unchanged(self, entry, drop: list) -> None:
        """Making an object may run the garbage collector, and so anything, that enters another call in this place."""
        self.dropping(self.icmp_signed("!=", self.compared(self.at(entry, -8 * self.key_size)), 0), drop)

    def compute(self, entry, addresses: tuple, drop: list) -> None:
        """Runs the kernel. addresses: of q, k, v, out, sums and lost."""
        job = self.part(entry, "job", PTR)
        with self.if_else(self.is_null(job)) as (alone, together):
            with alone:
                self._fill(entry, addresses)
                self.run_alone(entry)
            with together:
                self.claim(entry, drop)
                self._fill(entry, addresses)
                self.run_together(entry, job, self.part(entry, "counters", PTR))
                self.release(entry, drop)

    def _fill(self, entry, addresses: tuple) -> None:
        """The argument block of the call: addresses, and the counters as they are before a call."""
        block, (*arrays, sums, lost) = self.part(entry, "block", PTR), addresses
        step = self.part(entry, "step")
        rows = [sums, self.add(sums, step), self.add(sums, self.add(step, step))]
        names = "q", "k", "v", "out", "lse", "top", "total", "lost"
        for name, address in zip(names, (*arrays, *rows, lost), strict=True):
            self.put_word(address, block, FIXED.index(name))
        for number, name in ((3, "score"), (4, "mask")):
            slot = self.part(entry, name)
            with self.when(self.icmp_signed("!=", slot, 0)):
                self.put_word(self.word(self.data, number), block, slot)
        with self.when(self._marked(self.grows)):
            self._fill_growth(entry, block)
        counters, fresh = self.part(entry, "counters", PTR), self.part(entry, "fresh", PTR)
        self.external("memcpy", PTR, counters, fresh, self.part(entry, "size"))

    def _fill_growth(self, entry, block) -> None:
        """The number of keys, and the strides that depend on it."""
        keys, *strides = (self.word(self.growth, number) for number in range(len(GROWTH)))
        self.put_word(keys, block, FIXED.index("K"))
        with self.loop(0, self.part(entry, "tiles")) as tile:
            run = self.at(self.part(entry, "runs", PTR), tile.index, 12)
            self.put(self.trunc(keys, I32), self.at(run, 4), 4)
        for name, stride in zip(GROWTH[1:5], strides[:4], strict=True):
            self.put_word(self.mul(stride, self.part(entry, "bytes")), block, FIXED.index(name))
        for name, of_axes, size in (
            ("score", strides[4:7], self.part(entry, "score_bytes")),
            ("mask", strides[7:], self.index(1)),
        ):
            slot = self.part(entry, name)  # of its address, then of its sizes and strides by axis
            with self.when(self.icmp_signed("!=", slot, 0)):
                axes = self.at(block, self.add(slot, 1), 8)
                self.put(keys, self.at(axes, 8 * 2 * 3), 8)
                for axis, stride in enumerate(of_axes):
                    self.put_word(self.mul(stride, size), axes, 2 * axis + 1)

    def run_alone(self, entry) -> None:
        """Runs the kernel in this thread, with Python's lock: it takes microseconds."""
        block, scratch = self.part(entry, "block", PTR), self.part(entry, "scratch", PTR)
        self.call(Callee(self.part(entry, "kernel", PTR), RUN), [block, scratch, self.index(ENDLESS)])

    def claim(self, entry, drop: list) -> None:
        """What the entry points to is one call's: another thread that makes the same call meanwhile is missed."""
        busy = self.at(entry, 8 * ENTRY.index("busy"))
        threads = self.dropped(self.external("PyObject_CallNoArgs", PTR, self.known("get_threads")))
        unlike = self.not_(self.same(threads, self.part(entry, "threads", PTR)))
        self.dropping(self.or_(unlike, self.icmp_unsigned("!=", self.get(busy, I64, 8), 0)), drop)
        self.put(1, busy, 8)
        self.put(0, self.raised, 8)

    def run_together(self, entry, job, counter) -> None:
        """Runs the kernel on several threads, without Python's lock; signals are handled between slices of time."""
        self.put(self.part(entry, "workers"), self.at(job, HELPERS), 8)
        self.put(1, self.at(job, LEFT), 8)
        for place in (ENTERED, PENDING):
            self.put(0, self.at(job, place), 8)
        share = Callee(self.part(entry, "share", PTR), RUN)
        first, bell = self.part(entry, "first", PTR), self.part(entry, "bell")

        def slice_of_time():
            state = self.external("PyEval_SaveThread", PTR)
            self.call(share, [job, first, bell])
            self.external("PyEval_RestoreThread", ir.VoidType(), state)
            return self.icmp_signed("!=", self.get(self.at(job, LEFT), I64, 8), 0)

        with self.repeat(lambda go: go, [slice_of_time()]) as again:
            raised = self.icmp_signed("!=", self.external("PyErr_CheckSignals", I32), 0)
            with self.when(raised):  # no thread starts a further task, and all are awaited: they write to the output
                self.put(1, self.raised, 8)
                self.put(PAST, counter, 8)
            again.carry(slice_of_time())

    def release(self, entry, drop: list) -> None:
        """The entry is free again; if a signal handler raised, the call does."""
        self.put_word(0, entry, ENTRY.index("busy"))
        with self.when(self.icmp_signed("!=", self.get(self.raised, I64, 8), 0)):
            self.drop(drop)
            self.ret(ir.Constant(PTR, None))

    def _launch(self, launch, addresses, out) -> None:
        """`launch(addresses)`: None if it ran the kernel; anything else: the call is missed."""
        for place, address in enumerate(addresses):
            self.put_word(address, self.arguments, place)
        size = 8 * len(addresses)
        packed = self.external("PyBytes_FromStringAndSize", PTR, self.arguments, size)
        self._failed(packed, [out])
        self.external("Py_IncRef", ir.VoidType(), launch)
        answer = self.external("PyObject_CallOneArg", PTR, launch, packed)
        self.external("Py_DecRef", ir.VoidType(), launch)
        self.external("Py_DecRef", ir.VoidType(), packed)
        self._failed(answer, [out])
        self.external("Py_DecRef", ir.VoidType(), answer)
        with self.when(self.same(answer, self.known("none"))):
            self.ret(out)
        self.external("Py_DecRef", ir.VoidType(), out)
        self.branch(self.missed)

    def _failed(self, found, drop: list) -> None:
        """If a function raised, the call raises the same."""
        with self.when(self.is_null(found)):
            self.drop(drop)
            self.ret(ir.Constant(PTR, None))


# ---- NumPy's arrays, read as C extensions read them: their structure is public ---------------------------------------

DATA, NUMBER_OF_AXES, SHAPE, STRIDES, DTYPE = 16, 24, 32, 40, 56  # in a PyArrayObject
BYTE_ORDER, NUMBER = 26, 28  # in a PyArray_Descr: a character, and the number of the dtype


class Arrays(Reader):
    """Arrays in the place of tensors. In layouts, strides are in bytes."""

    def layout(self, array, into):
        """The address of the first element; writes the layout."""
        self.unless(self.not_(self.is_tensor(array)))
        axes = self.zext(self.get(self.at(array, NUMBER_OF_AXES), I32, 4), I64)
        self.unless(self.icmp_unsigned(">", axes, AXES))
        dtype = self._dtype(array)
        order = self.zext(self.get(self.at(dtype, BYTE_ORDER), ir.IntType(8), 1), I64)
        number = self.zext(self.get(self.at(dtype, NUMBER), I32, 4), I64)
        kind = self.or_(self.shl(number, 40), self.shl(order, 32))
        self.put(self.or_(kind, axes), into, 8)
        shape, strides = (self.get(self.at(array, place), PTR, 8) for place in (SHAPE, STRIDES))
        with self.loop(0, axes) as each:
            place = self.at(into, self.add(each.index, 1), 8)
            self.put(self.word(shape, each.index), place, 8)
            self.put_word(self.word(strides, each.index), place, AXES)
        return self.get(self.at(array, DATA), I64, 8)

    def _dtype(self, array):
        return self.get(self.at(array, DTYPE), PTR, 8)


class DescribeArrays(Arrays, Describe):
    """`describe_arrays`."""


class AttendArrays(Arrays, Attend):
    """`attend_arrays`."""

    def gradients_wanted(self):
        return ir.Constant(ir.IntType(1), 0)

    def made(self, shape, drop: list, dtype=None):
        """A new array of a shape, in the dtype of q; if that raises, the call does."""
        assert dtype is None
        self.put(shape, self.arguments, 8)
        self.put(self._dtype(self.given(self.first)), self.at(self.arguments, 8), 8)
        return self.called(shape, 2, ir.Constant(PTR, None), drop)

    def address_of(self, array, drop: list):
        """The address of a new array's first element."""
        return self.get(self.at(array, DATA), I64, 8)


MOST = 1 << 16  # numbers
LANES = 8


class Least(Reader):
    """`least`: the least number of a tensor, because what is added to scores is looked at in every call.

    None for tensors of another dtype, without numbers, with gaps in memory, or of so many numbers that torch's threads
    are faster. NaN is passed over.
    """

    def write(self) -> None:
        self.unless(self.icmp_signed("!=", self.args[2], 1))
        layout = self.alloca(I64, LAYOUT)
        self.clear(layout, LAYOUT)
        data = self.inttoptr(self.layout(self.given(0), layout), PTR)
        kind, count = self.word(layout, 0), 1
        for axis in range(AXES):
            exists = self.icmp_unsigned(">", self.and_(kind, 2**32 - 1), axis)
            size = self.select(exists, self.word(layout, 1 + axis), 1)
            count = self.mul(count, size)
        self.unless(self.icmp_signed("!=", count, self.get(self.extent, I64, 8)))
        self.unless(self.icmp_unsigned(">", self.sub(count, LANES), MOST - LANES))
        for row in FLOATS.values():
            dtype = row.kind | row.bits << 8 | 1 << 16
            with self.when(self.icmp_unsigned("==", self.lshr(kind, 32), dtype)):
                self.ret(self.external("PyFloat_FromDouble", PTR, self._least(row.name, data, count)))
        self.branch(self.missed)
        self.finish()

    def _least(self, name: str, data, count):
        """Of at least LANES contiguous numbers; the last ones may be read twice."""
        form = Format(name, host())
        end = self.sub(count, LANES)

        def numbers(first):
            return form.load(self, self.at(data, first, form.itemsize), LANES)

        with self.loop(0, end, LANES, carry=[numbers(end)]) as each:
            each.carry(self._less(numbers(each.index), each.carried[0]))
        (found,) = each.result
        least = self.number(math.inf, form.real)
        for lane in range(LANES):
            least = self._less(self.lane(found, lane), least)
        return least if REALS[FLOATS[name].sums] == F64 else self.fpext(least, F64)

    def _less(self, a, b):
        return self.select(self.fcmp_ordered("<", a, b), a, b)
