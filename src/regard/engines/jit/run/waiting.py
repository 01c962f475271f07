"""How a thread of the pool waits and reads the clock, as machine code: one class per system.

wait(place, expected, nanoseconds)   sleeps while the 32 bits at an address are as expected; may wake without a reason
wake(place)                          wakes a thread that sleeps there
now()                                the monotonic clock in nanoseconds
"""

from __future__ import annotations

import platform
import sys
import time

from llvmlite import ir

from ..code.ir import I32, I64, PTR, Code

LINE = 128  # bytes: two cache lines, because they are fetched in pairs
BELL = 4 * LINE  # bytes of the memory that all threads of a pool share
FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}  # the number of this system call


class _Posix:
    """What the systems with POSIX have in common."""

    def __init__(self, code: Code, bell):
        self.code = code
        self.time, self.room = code.alloca(I64, 2), code.alloca(I64, 2)

    def now(self):
        code = self.code
        code.external("clock_gettime", I32, code.index(time.CLOCK_MONOTONIC, I32), self.time)
        seconds, rest = (code.get(code.at(self.time, offset), I64, 8) for offset in (0, 8))
        return code.add(code.mul(seconds, 10**9), rest)


class Futex(_Posix):
    """Linux: a futex, which compares and sleeps in the kernel."""

    def _call(self, place, operation: int, value, timeout):
        code = self.code
        known = code.module.globals.get("syscall")
        syscall = known or ir.Function(code.module, ir.FunctionType(I64, [I64], var_arg=True), "syscall")
        private = code.index(operation | 128)
        code.call(syscall, [code.index(FUTEX[platform.machine()]), place, private, value, timeout])

    def wait(self, place, expected, nanoseconds: int | None) -> None:
        timeout = ir.Constant(PTR, None)
        if nanoseconds is not None:
            timeout = self.room
            for at, value in enumerate(divmod(nanoseconds, 10**9)):
                self.code.put(value, self.code.at(timeout, 8 * at), 8)
        self._call(place, 0, expected, timeout)

    def wake(self, place) -> None:
        self._call(place, 1, self.code.index(1, I32), ir.Constant(PTR, None))


class Condition(_Posix):
    """Other systems with POSIX: one mutex and one condition variable for all threads, at the bell."""

    def __init__(self, code: Code, bell):
        super().__init__(code, bell)
        self.mutex, self.condition = bell, code.at(bell, BELL // 2)

    def _call(self, name: str, *args) -> None:
        self.code.external(f"pthread_{name}", I32, *args)

    def wait(self, place, expected, nanoseconds: int | None) -> None:
        code = self.code
        self._call("mutex_lock", self.mutex)
        with code.when(code.icmp_signed("==", code.load_atomic(place, "seq_cst", 4, typ=I32), expected)):
            if nanoseconds is None:
                self._call("cond_wait", self.condition, self.mutex)
            else:
                code.external("clock_gettime", I32, code.index(time.CLOCK_REALTIME, I32), self.room)
                at = code.at(self.room, 8)
                total = code.add(code.get(at, I64, 8), nanoseconds)
                second = code.index(10**9)
                code.put(code.add(code.get(self.room, I64, 8), code.sdiv(total, second)), self.room, 8)
                code.put(code.srem(total, second), at, 8)
                self._call("cond_timedwait", self.condition, self.mutex, self.room)
        self._call("mutex_unlock", self.mutex)

    def wake(self, place) -> None:
        self._call("mutex_lock", self.mutex)
        self._call("cond_broadcast", self.condition)
        self._call("mutex_unlock", self.mutex)


WAITING: dict[str, type] = {"futex": Futex, "condition": Condition}


def waiting_here() -> str:
    """How threads wait on this machine."""
    return "futex" if sys.platform == "linux" and platform.machine() in FUTEX else "condition"
