"""Tensors and calls as machine code reads them: the layouts of tensors, and the key of a call.

A tensor is read by DLPack's C exchange interface, which torch implements; objects by Python's C interface.
"""

from __future__ import annotations

import functools

from llvmlite import ir

from ..code.ir import F64, I32, I64, PTR, Callee, Code

# Functions of Python's C interface that the code calls.
PYTHON = (
    "PyBytes_FromStringAndSize",
    "PyErr_CheckSignals",
    "PyErr_Clear",
    "PyEval_RestoreThread",
    "PyEval_SaveThread",
    "PyFloat_AsDouble",
    "PyFloat_FromDouble",
    "PyLong_AsLongLong",
    "PyLong_AsVoidPtr",
    "PyObject_CallNoArgs",
    "PyObject_CallOneArg",
    "PyObject_GetAttr",
    "PyObject_Size",
    "PyObject_Vectorcall",
    "PyTuple_New",
    "PyTuple_SetItem",
    "Py_DecRef",
    "Py_IncRef",
)

TENSORS = 9  # of a backward pass: q, k, v, out, sums, lost, dout; mask and score, or None
NEEDED = 7  # of them
GIVEN = 13  # arguments: three tensors, then mask, score, numbers and engine
OTHERS = GIVEN - 3
AXES = 5  # most axes of a tensor
LAYOUT = 1 + 2 * AXES  # axes and dtype in one word, shape, strides
READ = 5  # q, k, v, and a score and a mask that are tensors
KEY = OTHERS + 1 + READ * LAYOUT  # words: an argument by its address, a float by its bits; which are floats; layouts
MASK, SCORE = 0, 1  # of the arguments after the tensors
IS_TENSOR = 1  # in its word; no object has this address

# Decoding: calls of up to FEW rows, or of one row with a mask or a score that is a tensor, that differ in the number of
# keys only. Those with the same number of keys in units of STEP share an entry. GROWTH: what it leaves out of its key.
FEW, STEP = 16, 64
GROWTH = (
    "keys",
    "k_batch",
    "k_head",
    "v_batch",
    "v_head",
    *(f"{name}_{axis}" for name in ("score", "mask") for axis in ("batch", "head", "row")),
)

# Words of the table, of an entry after its key, and of a condition.
TABLE = (
    "count", "latest", "entries", "back_count", "backs", "conditions", "first",
    "read", "none", "false", "float", "tensor", "parameter",
    "requires_grad", "grad_enabled", "is_neg", "storage", "offset", "empty", "dtype", "int16", "get_threads",
)  # fmt: skip
ENTRY = (
    "kind", "shape", "sums_shape", "real", "narrow", "differentiate", "score", "mask",
    "runs", "tiles", "bytes", "score_bytes", "kernel", "block", "counters", "fresh", "size", "scratch", "sums", "step",
    "launch", "threads", "workers", "share", "first", "bell", "job", "busy",
)  # fmt: skip
CONDITION = "object", "name", "expected"

TYPE = 8  # the offset of an object's type in CPython
DATA, DEVICE, KIND, SHAPE, STRIDES, OFFSET, TENSOR = 0, 8, 16, 24, 32, 40, 48  # in a DLTensor; KIND: axes and dtype
CPU = 1  # the number of the device


class Reader(Code):
    """What the functions have in common. Whatever does not fit leads to `missed`, where None is returned."""

    def __init__(self, function: ir.Function):
        super().__init__(function.append_basic_block("entry"))
        self.args = function.args
        self.missed = function.append_basic_block("missed")
        self.key, self.tensor = self.alloca(I64, KEY), self.alloca(I64, TENSOR // 8)
        self.data, self.extent = self.alloca(I64, READ), self.alloca(I64)
        self.growth, self.grows = self.alloca(I64, len(GROWTH)), self.alloca(I64)
        self.table = self.external("PyLong_AsVoidPtr", PTR, self.args[0])

    def word(self, pointer, number, type=I64):
        """A word of a block of memory."""
        return self.get(self.at(pointer, number, 8), type, 8)

    def put_word(self, value, pointer, number) -> None:
        self.put(value, self.at(pointer, number, 8), 8)

    def known(self, name: str, type=PTR):
        """A word of the table."""
        return self.word(self.table, TABLE.index(name), type)

    def given(self, number: int):
        return self.word(self.args[1], number, PTR)

    def unless(self, condition) -> None:
        """Goes on if the condition is false, otherwise to `missed`."""
        after = self.append_basic_block("after")
        self.cbranch(condition, self.missed, after)
        self.position_at_end(after)

    def is_null(self, pointer):
        return self.icmp_unsigned("==", self.ptrtoint(pointer, I64), 0)

    def same(self, a, b):
        """Whether two objects are the same one."""
        return self.icmp_unsigned("==", self.ptrtoint(a, I64), self.ptrtoint(b, I64))

    def dropped(self, value):
        """An object that is only compared: its reference is released. Without an object the call is missed."""
        self.unless(self.is_null(value))
        self.external("Py_DecRef", ir.VoidType(), value)
        return value

    def describe(self) -> None:
        """Writes the key, and the addresses of the data of q, k, v, and of a score and a mask that are tensors."""
        self.unless(self.icmp_signed("!=", self.args[2], GIVEN))
        self.clear(self.key, KEY)
        for number in range(OTHERS):
            self._argument(number)
        for number in range(3):
            self._read(number, self.given(number))
        for number, place in ((3, SCORE), (4, MASK)):
            with self.when(self.is_tensor(self.given(3 + place))):
                self.put_word(IS_TENSOR, self.key, place)
                self._read(number, self.given(3 + place))

    def read_into(self, words, place: int, layout, argument: int) -> None:
        """The address of a tensor of a backward pass as a word, and its layout; the last ones may be None."""
        tensor = self.given(argument)
        if place < NEEDED:
            self.put_word(self.layout(tensor, layout), words, place)
        else:
            with self.when(self.not_(self.same(tensor, self.known("none")))):
                self.put_word(self.layout(tensor, layout), words, place)

    @property
    def score(self):
        return self.given(3 + SCORE)

    def _read(self, number: int, tensor) -> None:
        layout = self.at(self.key, 8 * (OTHERS + 1 + number * LAYOUT))
        self.put_word(self.layout(tensor, layout), self.data, number)

    def let_grow(self) -> None:
        """Takes what the next token changes out of the key, and keeps it in `growth`, if the call may be a step of
        decoding; `grows` is then 1.
        """
        q, k, v, score, mask = (functools.partial(self._in_layout, number) for number in range(READ))
        keys = self.get(k("shape", 2), I64, 8)
        fits, rows = [self.same_word(each("axes"), 4) for each in (q, k, v)], []
        for rule, place in ((score, SCORE), (mask, MASK)):
            alone = self.icmp_signed("==", self.word(self.key, place), self.ptrtoint(self.known("none"), I64))
            row = [self.same_word(rule("axes"), 4), self.same_word(rule("shape", 2), 1)]
            row += [self.same_word(q("shape", 2), 1), self.icmp_signed("==", self.get(rule("shape", 3), I64, 8), keys)]
            rows.append(functools.reduce(self.and_, row, self.same_word(self.at(self.key, 8 * place), IS_TENSOR)))
            fits.append(self.or_(alone, rows[-1]))
        fits.append(self.icmp_signed("<=", self.get(q("shape", 2), I64, 8), FEW))
        fits.append(self.icmp_signed("==", self.get(v("shape", 2), I64, 8), keys))
        fits.append(self.icmp_signed(">", keys, 1))  # a score of one key is one number for all keys
        self.put(0, self.grows, 8)
        with self.when(functools.reduce(self.and_, fits)):
            self.put(1, self.grows, 8)
            self.put(keys, self.growth, 8)
            rounded = self.mul(self.sdiv(self.add(keys, STEP - 1), STEP), STEP)
            for place in (k("shape", 2), v("shape", 2)):
                self.put(rounded, place, 8)
            for rule, row in zip((score, mask), rows, strict=True):
                with self.when(row):
                    self.put(rounded, rule("shape", 3), 8)
            strides = [each("strides", axis) for each in (k, v) for axis in range(2)]
            strides += [rule("strides", axis) for rule in (score, mask) for axis in range(3)]
            for number, place in enumerate(strides):
                self.put_word(self.get(place, I64, 8), self.growth, 1 + number)
                self.put(0, place, 8)

    def _in_layout(self, number: int, name: str, axis: int = 0):
        """The place of a word in the layout of a tensor."""
        place = {"axes": 0, "shape": 1 + axis, "strides": 1 + AXES + axis}[name]
        return self.at(self.key, 8 * (OTHERS + 1 + number * LAYOUT + place))

    def same_word(self, place, number: int):
        """Whether a word, or the number of axes in it, is this number."""
        return self.icmp_signed("==", self.and_(self.get(place, I64, 8), 2**32 - 1), number)

    def clear(self, words, count: int) -> None:
        for place in range(count):
            self.put_word(0, words, place)

    def _argument(self, number: int) -> None:
        value, place = self.given(3 + number), self.at(self.key, 8 * number)
        is_float = self.same(self.get(self.at(value, TYPE), PTR, 8), self.known("float"))
        with self.if_else(is_float) as (yes, no):
            with yes:
                bits = self.bitcast(self.external("PyFloat_AsDouble", F64, value), I64)
                self.put(bits, place, 8)
                which = self.at(self.key, 8 * OTHERS)
                self.put(self.or_(self.get(which, I64, 8), 1 << number), which, 8)
            with no:
                self.put(self.ptrtoint(value, I64), place, 8)

    def layout(self, tensor, into):
        """The address of the first element; writes the layout. The tensor is plain and on the CPU, with its numbers in
        memory as they are, and all of them: FSDP frees the storage of tensors.
        """
        self.unless(self.not_(self.is_tensor(tensor)))
        negative = self.dropped(self.external("PyObject_CallOneArg", PTR, self.known("is_neg"), tensor))
        self.unless(self.not_(self.same(negative, self.known("false"))))
        self.unless(self.read(tensor))
        self.unless(self.icmp_signed("!=", self.field(DEVICE), CPU))
        kind, data = self.field(KIND), self.data_of_tensor()
        self.put(kind, into, 8)
        axes = self.and_(kind, 2**32 - 1)
        self.unless(self.icmp_unsigned(">", axes, AXES))
        shape, strides = (self.field(place, PTR) for place in (SHAPE, STRIDES))
        self.put(1, self.extent, 8)
        with self.loop(0, axes) as each:
            size, stride = self.word(shape, each.index), self.word(strides, each.index)
            place = self.at(into, self.add(each.index, 1), 8)
            self.put(size, place, 8)
            self.put_word(stride, place, AXES)
            last = self.mul(self.sub(size, 1), stride)
            self.put(self.add(self.get(self.extent, I64, 8), last), self.extent, 8)
        self._in_memory(tensor, kind, data)
        return data

    def is_tensor(self, value):
        kind = self.get(self.at(value, TYPE), PTR, 8)
        return self.or_(self.same(kind, self.known("tensor")), self.same(kind, self.known("parameter")))

    def field(self, place: int, type=I64):
        """A part of the tensor that was read last."""
        return self.get(self.at(self.tensor, place), type, 8)

    def data_of_tensor(self):
        """The address of its first element."""
        return self.add(self.field(DATA), self.field(OFFSET))

    def read(self, tensor):
        """Reads a tensor; whether that failed."""
        reader = Callee(self.known("read"), ir.FunctionType(I32, [PTR, PTR]))
        return self.icmp_signed("!=", self.call(reader, [tensor, self.tensor]), 0)

    def _in_memory(self, tensor, kind, data) -> None:
        """The storage has all elements of the tensor."""
        offset = self.external("PyObject_CallOneArg", PTR, self.known("offset"), tensor)
        self.unless(self.is_null(offset))
        start = self.external("PyLong_AsLongLong", I64, offset)
        self.external("Py_DecRef", ir.VoidType(), offset)
        storage = self.external("PyObject_CallOneArg", PTR, self.known("storage"), tensor)
        self.unless(self.is_null(storage))
        held = self.external("PyObject_Size", I64, storage)
        self.external("Py_DecRef", ir.VoidType(), storage)
        bits = self.and_(self.lshr(kind, 40), 255)
        elements = self.add(start, self.get(self.extent, I64, 8))
        self.unless(self.icmp_signed("<", held, self.mul(elements, self.lshr(bits, 3))))
        self.unless(self.icmp_unsigned("==", data, 0))

    def finish(self) -> None:
        """None, without an exception."""
        self.position_at_end(self.missed)
        self.external("PyErr_Clear", ir.VoidType())
        none = self.known("none")
        self.external("Py_IncRef", ir.VoidType(), none)
        self.ret(none)
