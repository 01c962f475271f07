"""The direct call as machine code: from the tensors of a call like an earlier one to its kernel, without Python.

    attend(q, k, v, rule and numbers …)     the output, or None: no call like this one is in the table
    describe(q, k, v, rule and numbers …)   the key of such a call as bytes, or None: it has to go through Python
    layout(tensors …)                       addresses and layouts of seven tensors as bytes, or None likewise

They are functions of Python's C interface (METH_FASTCALL), and hold its lock. Their `self` is the address of the table
(direct.py), an integer.
"""

from __future__ import annotations

from llvmlite import ir

from ..code.arguments import FIXED
from ..code.ir import I1, I32, I64, PTR
from .direct_tensors import CONDITION, ENTRY, KEY, LAYOUT, PYTHON, TABLE, Callee, Reader
from .pool import ENDLESS, ENTERED, HELPERS, LEFT, PENDING

__all__ = ["ENTRY", "KEY", "PYTHON", "TABLE", "write"]

TENSORS = 7  # of `layout`: q, k, v, out, sums, lost, dout
PAST = 2**62  # a counter beyond every task
RUN = ir.FunctionType(ir.VoidType(), [PTR, PTR, I64])


def write() -> ir.Module:
    """The module with all functions."""
    module = ir.Module("regard")
    for writer, name in ((_Attend, "attend"), (_Describe, "describe"), (_Layout, "layout")):
        writer(ir.Function(module, ir.FunctionType(PTR, [PTR, PTR, I64]), name)).write()
    return module


class _Describe(Reader):
    """`describe`."""

    def write(self) -> None:
        self.describe()
        self.ret(self.python("PyBytes_FromStringAndSize", PTR, self.key, self.index(8 * KEY)))
        self.finish()


class _Layout(Reader):
    """`layout`."""

    def write(self) -> None:
        self.unless(self.icmp_signed("!=", self.args[2], self.index(TENSORS)))
        words = self.alloca(I64, TENSORS * (1 + LAYOUT))
        self.clear(words, TENSORS * (1 + LAYOUT))
        for number in range(TENSORS):
            layout = self.at(words, 8 * (TENSORS + number * LAYOUT))
            self.put(self.layout(self.given(number), layout), self.at(words, 8 * number), 8)
        self.ret(self.python("PyBytes_FromStringAndSize", PTR, words, self.index(8 * TENSORS * (1 + LAYOUT))))
        self.finish()


class _Attend(Reader):
    """`attend`."""

    def write(self) -> None:
        self.unless(self.icmp_signed("==", self.known("count", I64), self.index(0)))
        self._conditions()
        self.describe()
        entry = self._found()
        self._differentiate(entry)
        self._run(entry)
        self.finish()

    def _conditions(self) -> None:
        """Nothing else looks at calls of torch: a condition is a function without arguments, or an attribute, and the
        object that it has to be.
        """
        first = self.known("first")
        with self.loop(self.index(0), self.known("conditions", I64)) as each:
            condition = self.at(first, self.mul(each.index, self.index(8 * len(CONDITION))))
            thing, name, expected = (self.word(condition, number, PTR) for number in range(len(CONDITION)))
            with self.if_else(self.icmp_unsigned("==", self.ptrtoint(name, I64), self.index(0))) as (calls, reads):
                with calls:
                    called, when_called = self.python("PyObject_CallNoArgs", PTR, thing), self.block
                with reads:
                    read, when_read = self.python("PyObject_GetAttr", PTR, thing, name), self.block
            found = self.phi(PTR)
            found.add_incoming(called, when_called)
            found.add_incoming(read, when_read)
            self.unless(self.not_(self.same(self.dropped(found), expected)))

    def _found(self):
        """The entry with this key: the search begins after the latest, because models repeat their calls in order."""
        count, latest, entries = (self.known(name, I64) for name in ("count", "latest", "entries"))
        size = 8 * (KEY + len(ENTRY))
        found = self.append_basic_block("found")
        with self.loop(self.index(0), count) as each:
            number = self.urem(self.add(self.add(latest, each.index), self.index(1)), count)
            entry = self.inttoptr(self.add(entries, self.mul(number, self.index(size))), PTR)
            after = self.append_basic_block("after")
            self.cbranch(self.icmp_signed("==", self._compared(entry), self.index(0, I32)), found, after)
            self.position_at_end(after)
        self.branch(self.missed)
        self.position_at_end(found)
        self.put(number, self.at(self.table, 8 * TABLE.index("latest")), 8)
        return self.at(entry, 8 * KEY)

    def _compared(self, entry):
        """0 if the entry has this key."""
        return self.external("memcmp", I32, entry, self.key, self.index(8 * KEY))

    def part(self, entry, name: str, type=I64):
        return self.word(entry, ENTRY.index(name), type)

    def _differentiate(self, entry) -> None:
        """A call that needs gradients: `differentiate(kind, q, k, v)` returns the output."""
        false, needed = self.known("false"), self.index(0, I1)
        for number in range(3):
            wanted = self.python("PyObject_GetAttr", PTR, self.given(number), self.known("requires_grad"))
            needed = self.or_(needed, self.not_(self.same(self.dropped(wanted), false)))
        with self.when(needed):
            enabled = self.dropped(self.python("PyObject_CallNoArgs", PTR, self.known("grad_enabled")))
            with self.when(self.not_(self.same(enabled, false))):
                differentiate = self.part(entry, "differentiate", PTR)
                self.unless(self.icmp_unsigned("==", self.ptrtoint(differentiate, I64), self.index(0)))
                self.python("Py_IncRef", ir.VoidType(), differentiate)
                nothing = ir.Constant(PTR, None)
                out = self.python("PyObject_Vectorcall", PTR, differentiate, self.args[1], self.index(3), nothing)
                self.python("Py_DecRef", ir.VoidType(), differentiate)
                self.ret(out)

    def _run(self, entry) -> None:
        """Makes the output, and runs the kernel here, or by `launch` if there is one."""
        arguments, shape = self.alloca(PTR, 4), self.part(entry, "shape", PTR)
        self.put(self.given(0), arguments, 8)
        self.put(shape, self.at(arguments, 8), 8)
        nothing = ir.Constant(PTR, None)
        self.python("Py_IncRef", ir.VoidType(), shape)
        out = self.python("PyObject_Vectorcall", PTR, self.known("new_empty"), arguments, self.index(2), nothing)
        self.python("Py_DecRef", ir.VoidType(), shape)
        self._failed(out)
        # Making an object may run the garbage collector, and so anything, that enters another call in this place.
        differs = self.icmp_signed("!=", self._compared(self.at(entry, -8 * KEY)), self.index(0, I32))
        with self.when(differs):
            self.python("Py_DecRef", ir.VoidType(), out)
        self.unless(differs)
        unread = self.read(out)
        with self.when(unread):
            self.python("Py_DecRef", ir.VoidType(), out)
        self.unless(unread)
        addresses = [self.word(self.data, number) for number in range(3)]
        addresses.append(self.data_of_tensor())
        launch = self.part(entry, "launch", PTR)
        with self.when(self.icmp_unsigned("!=", self.ptrtoint(launch, I64), self.index(0))):
            self._launch(launch, addresses, out, arguments)
        job = self.part(entry, "job", PTR)
        alone = self.icmp_unsigned("==", self.ptrtoint(job, I64), self.index(0))
        with self.when(alone):
            self._fill(entry, addresses)
            block, scratch = self.part(entry, "block", PTR), self.part(entry, "scratch", PTR)
            self.call(Callee(self.part(entry, "kernel", PTR), RUN), [block, scratch, self.index(ENDLESS)])
            self.ret(out)
        self._share(entry, job, addresses, out)

    def _fill(self, entry, addresses) -> None:
        """The argument block of the call: addresses, and the counters as they are before a call."""
        block = self.part(entry, "block", PTR)
        for name, address in zip(("q", "k", "v", "out"), addresses, strict=True):
            self.put(address, self.at(block, 8 * FIXED.index(name)), 8)
        counters, fresh = self.part(entry, "counters", PTR), self.part(entry, "fresh", PTR)
        self.external("memcpy", PTR, counters, fresh, self.part(entry, "size"))

    def _share(self, entry, job, addresses, out) -> None:
        """Runs the kernel on several threads, without Python's lock; a signal is handled between slices of the call.
        What the entry points to is one call's: another thread that makes the same call meanwhile is missed.
        """
        nothing = self.index(0)
        busy = self.at(entry, 8 * ENTRY.index("busy"))
        unlike = self.dropped(self.python("PyObject_CallNoArgs", PTR, self.known("get_threads")))
        unlike = self.not_(self.same(unlike, self.part(entry, "threads", PTR)))
        taken = self.or_(unlike, self.icmp_unsigned("!=", self.get(busy, I64, 8), nothing))
        with self.when(taken):
            self.python("Py_DecRef", ir.VoidType(), out)
        self.unless(taken)
        self.put(self.index(1), busy, 8)
        self._fill(entry, addresses)
        self.put(self.part(entry, "workers"), self.at(job, HELPERS), 8)
        self.put(self.index(1), self.at(job, LEFT), 8)
        for place in (ENTERED, PENDING):
            self.put(nothing, self.at(job, place), 8)
        share = Callee(self.part(entry, "share", PTR), RUN)
        first, bell = self.part(entry, "first", PTR), self.part(entry, "bell")
        room = self.alloca(I64)
        self.put(nothing, room, 8)

        def slice_of_time():
            state = self.python("PyEval_SaveThread", PTR)
            self.call(share, [job, first, bell])
            self.python("PyEval_RestoreThread", ir.VoidType(), state)
            return self.icmp_signed("!=", self.get(self.at(job, LEFT), I64, 8), nothing)

        with self.repeat(lambda go: go, [slice_of_time()]) as again:
            raised = self.icmp_signed("!=", self.python("PyErr_CheckSignals", I32), self.index(0, I32))
            with self.when(raised):  # no thread starts a further task, and all are awaited: they write to `out`
                self.put(self.index(1), room, 8)
                self.put(self.index(PAST), self.part(entry, "counters", PTR), 8)
            again.carry(slice_of_time())
        self.put(nothing, busy, 8)
        with self.when(self.icmp_signed("!=", self.get(room, I64, 8), nothing)):
            self.python("Py_DecRef", ir.VoidType(), out)
            self.ret(ir.Constant(PTR, None))
        self.ret(out)

    def _launch(self, launch, addresses, out, arguments) -> None:
        """`launch(addresses)`: None if it ran the kernel; anything else: the call is missed."""
        for place, address in enumerate(addresses):
            self.put(address, self.at(arguments, 8 * place), 8)
        size = self.index(8 * len(addresses))
        packed = self.python("PyBytes_FromStringAndSize", PTR, arguments, size)
        self._failed(packed, out)
        self.python("Py_IncRef", ir.VoidType(), launch)
        answer = self.python("PyObject_CallOneArg", PTR, launch, packed)
        self.python("Py_DecRef", ir.VoidType(), launch)
        self.python("Py_DecRef", ir.VoidType(), packed)
        self._failed(answer, out)
        self.python("Py_DecRef", ir.VoidType(), answer)
        with self.when(self.same(answer, self.known("none"))):
            self.ret(out)
        self.python("Py_DecRef", ir.VoidType(), out)
        self.branch(self.missed)

    def _failed(self, found, out=None) -> None:
        """If a function raised, the call raises the same."""
        with self.when(self.icmp_unsigned("==", self.ptrtoint(found, I64), self.index(0))):
            if out is not None:
                self.python("Py_DecRef", ir.VoidType(), out)
            self.ret(ir.Constant(PTR, None))
