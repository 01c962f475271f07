"""Direct calls with gradients as machine code: what the forward pass keeps, and the backward pass.

keep(kind, q, k, v, mask, score)   (out, sums) or (out, sums, lost), or None: it goes through Python
pull_back(kind, q, k, v, out, sums, lost, dout, mask, score)   the gradients of q, k and v, or None likewise
"""

from __future__ import annotations

from llvmlite import ir

from ..code.ir import I32, I64, PTR
from ..kernels.backward_specification import ARRAYS, PHASES
from ..kernels.backward_specification import FIXED as SLOTS
from ..pool import PAST
from .forward import Attend
from .tensors import ENTRY, KEY, LAYOUT, MASK, NEEDED, OTHERS, SCORE, TENSORS

BACK_KEY = 1 + TENSORS * LAYOUT  # words: the kind, and the layouts of the tensors
# Words of an entry of the backward pass after its key: those of a call, then its own.
BACK = (*ENTRY, "dq", "dk", "dv", "room", "room_bytes", *(f"{phase}_tasks" for phase in PHASES))


class Keep(Attend):
    """`keep`."""

    first = 1

    def write(self) -> None:
        self.unless(self.icmp_signed("!=", self.args[2], 6))
        self.clear(self.key, KEY)
        for number in range(3):
            self._read(number, self.given(1 + number))
        for number, place in ((3, SCORE), (4, MASK)):
            with self.when(self.is_tensor(self.given(4 + place))):
                self._read(number, self.given(4 + place))
        entry = self._of_kind()
        self.unless(self.icmp_unsigned("!=", self.ptrtoint(self.part(entry, "launch", PTR), I64), 0))
        # The rest of the key is that of the entry, so that `compared` compares all of it.
        self.external("memcpy", PTR, self.key, self.at(entry, -8 * KEY), 8 * (OTHERS + 1))
        self.unless(self.icmp_signed("!=", self.compared(self.at(entry, -8 * KEY)), 0))
        narrow = self.icmp_unsigned("!=", self.part(entry, "narrow"), 0)
        shape, nothing = self.part(entry, "shape", PTR), ir.Constant(PTR, None)
        out = self.made(shape, [])
        sums = self.made(self.part(entry, "sums_shape", PTR), [out], self.part(entry, "real", PTR))
        before = self.block
        with self.if_then(narrow):
            found = self.made(shape, [out, sums], self.known("int16"))
            after = self.block
        lost = self.phi(PTR)
        lost.add_incoming(nothing, before)
        lost.add_incoming(found, after)
        drop = [out, sums, lost]
        self._unchanged(entry, drop)
        addresses = [*(self.word(self.data, number) for number in range(3))]
        addresses += [self.address_of(out, drop), self.address_of(sums, drop)]
        self.put(0, self.extent, 8)
        with self.when(narrow):
            self.put(self.address_of(lost, drop), self.extent, 8)
        self.compute(entry, (*addresses, self.get(self.extent, I64, 8)), drop)
        size = self.select(narrow, 3, 2)
        answer = self.external("PyTuple_New", PTR, size)
        self._failed(answer, drop)
        for place, each in enumerate((out, sums)):
            self.external("PyTuple_SetItem", I32, answer, place, each)
        with self.when(narrow):
            self.external("PyTuple_SetItem", I32, answer, 2, lost)
        self.ret(answer)
        self.finish()

    def _of_kind(self):
        """The entry of this kind: likely the latest, because `attend` has found it just now."""
        count, latest, entries = (self.known(name, I64) for name in ("count", "latest", "entries"))
        kind = self.ptrtoint(self.given(0), I64)

        def place(number):
            number = self.urem(self.add(latest, number), count)
            offset = self.add(self.mul(number, 8 * (KEY + len(ENTRY))), 8 * KEY)
            return number, self.inttoptr(self.add(entries, offset), PTR)

        return self.search(count, place, lambda entry: self.icmp_unsigned("==", self.part(entry, "kind"), kind))[1]


class PullBack(Attend):
    """`pull_back`."""

    first, key_size = 1, BACK_KEY

    def __init__(self, function: ir.Function):
        super().__init__(function)
        self.put(0, self.raised, 8)
        self.key, self.data = self.alloca(I64, BACK_KEY), self.alloca(I64, TENSORS)

    def write(self) -> None:
        self.unless(self.icmp_signed("!=", self.args[2], 1 + TENSORS))
        self.unless(self.icmp_signed("==", self.known("back_count", I64), 0))
        self.conditions()
        self.clear(self.key, BACK_KEY)
        self.put(self.ptrtoint(self.given(0), I64), self.key, 8)
        for number in range(TENSORS):
            self.read_into(self.data, number, self.at(self.key, 8 * (1 + number * LAYOUT)), 1 + number)
        entry = self._known_layout()
        gradients: list = []
        for name in ("dq", "dk", "dv"):
            gradients.append(self.made(self.back(entry, name, PTR), gradients))
        self._unchanged(entry, gradients)
        q, k, v, out, sums, lost, dout = (self.word(self.data, number) for number in range(NEEDED))
        step = self.part(entry, "step")
        lost = self.select(self.icmp_unsigned("!=", self.part(entry, "narrow"), 0), lost, 0)
        new = [self.address_of(each, gradients) for each in gradients]
        given = dict(zip(ARRAYS, (q, k, v, out, dout, *new), strict=True))
        given |= {"top": self.add(sums, step), "total": self.add(sums, self.add(step, step)), "lost": lost}
        job = self.part(entry, "job", PTR)
        shared = self.icmp_unsigned("!=", self.ptrtoint(job, I64), 0)
        with self.when(shared):
            self.claim(entry, gradients)
        self._fill_back(entry, given)
        for number, phase in enumerate(PHASES):
            counter = self._begin(entry, number, phase)
            with self.if_else(shared) as (together, alone):
                with together:
                    self.run_together(entry, job, counter)
                with alone:
                    self.run_alone(entry)
        with self.when(shared):
            self.release(entry, gradients)
        answer = self.external("PyTuple_New", PTR, 3)
        self._failed(answer, gradients)
        for place, each in enumerate(gradients):
            self.external("PyTuple_SetItem", I32, answer, place, each)
        self.ret(answer)
        self.finish()

    def back(self, entry, name: str, type=I64):
        return self.word(entry, BACK.index(name), type)

    def _known_layout(self):
        count, entries, size = self.known("back_count", I64), self.known("backs", I64), 8 * (BACK_KEY + len(BACK))

        def place(number):
            return number, self.inttoptr(self.add(entries, self.mul(number, size)), PTR)

        return self.at(self.search(count, place, self.has_key)[1], 8 * BACK_KEY)

    def _fill_back(self, entry, given: dict) -> None:
        """The arrays of the call in its argument block, and its working memory, which is zero at first."""
        block = self.part(entry, "block", PTR)
        for name, address in given.items():
            self.put_word(address, block, SLOTS.index(name))
        for number, name in enumerate(("mask", "score"), NEEDED):
            slot = self.part(entry, name)
            with self.when(self.icmp_signed("!=", slot, 0)):
                self.put_word(self.word(self.data, number), block, slot)
        room, size = self.back(entry, "room", PTR), self.back(entry, "room_bytes")
        self.external("memset", PTR, room, self.index(0, I32), size)

    def _begin(self, entry, number: int, phase: str):
        """Enters a phase in the argument block; the address of its counter of tasks."""
        block = self.part(entry, "block", PTR)
        counter = self.at(self.part(entry, "counters", PTR), 8 * number)
        self.put_word(self.ptrtoint(counter, I64), block, SLOTS.index("next"))
        self.put_word(self.back(entry, f"{phase}_tasks"), block, SLOTS.index("tasks"))
        self.put_word(number, block, SLOTS.index("phase"))
        with self.when(self.icmp_signed("!=", self.get(self.raised, I64, 8), 0)):
            self.put(PAST, counter, 8)
        return counter
