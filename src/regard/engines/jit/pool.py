"""The thread pool as machine code: how a caller passes its tasks to waiting threads, and how they wait.

    mailbox   where one worker waits      job (an address; 0: empty, 1: taken by the worker) · next mailbox · asleep
    job       one call of a kernel        kernel · arguments · scratch · stride · helpers · left · entered · pending

A caller posts its job to empty mailboxes, works itself, retracts the job from workers that have not started, and waits
for those that have, so a worker that wakes late delays no call. Callers share the mailboxes without a lock; a caller
for which none is empty works alone. A worker polls its mailbox for a moment (SPIN), then sleeps in the operating
system; neither needs the interpreter. How it sleeps depends on the system: `Futex` and `Condition`.

A caller returns to Python every SLICE, so that signals are handled, and is called again until all tasks are done.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable

from llvmlite import ir

from .code.ir import I32, I64, PTR, Callee, Code

LINE = 128  # bytes: two cache lines, because they are fetched in pairs
BELL = 4 * LINE  # bytes of the memory that all threads of a pool share
FUTEX = {"x86_64": 202, "aarch64": 98, "riscv64": 98}  # the number of this system call

SPIN = 50_000  # ns that a worker polls for the next job: about the time between two small calls in Python
PATIENCE = 20_000  # ns that a caller polls for the last worker before it sleeps
SLICE = 20_000_000  # ns after which a caller returns to Python
ENDLESS = 2**62  # a budget of tasks that is never used up
PAST = 2**62  # a counter of tasks beyond all of them: the call is to end

MAILBOX, JOB = LINE, 2 * LINE  # bytes
POST, NEXT, ASLEEP = 0, 8, 16  # in a mailbox
KERNEL, ARGUMENTS, SCRATCH, STRIDE, HELPERS, LEFT = range(0, 48, 8)  # in a job: what the caller writes
ENTERED, PENDING = LINE, LINE + 8  # and what its workers write
TAKEN = 1
AWAITED = 1 << 30  # in `pending`: the caller sleeps

RUN = ir.FunctionType(ir.VoidType(), [PTR, PTR, I64])


# how a thread waits and reads the clock -------------------------------------------------------------------------------
#
# wait(place, expected, nanoseconds)   sleeps while the 32 bits at an address are as expected; may wake without a reason
# wake(place)                          wakes a thread that sleeps there
# now()                                the monotonic clock in nanoseconds


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


# the two functions ----------------------------------------------------------------------------------------------------


class _Writer(Code):
    """A builder with the operations that all functions of the pool share."""

    def __init__(self, module: ir.Module, name: str, sleep: str):
        function = ir.Function(module, RUN, name)
        super().__init__(function.append_basic_block("entry"))
        self.args = function.args
        self.count = self.alloca(I64)
        self.sleep = WAITING[sleep](self, self.inttoptr(function.args[2], PTR))

    def atomic_load(self, place, type=I64):
        return self.load_atomic(place, "seq_cst", type.width // 8, typ=type)

    def set(self, place, value: int, type=I64):
        self.atomic_rmw("xchg", place, self.index(value, type), "seq_cst")

    def swap(self, place, before, after):
        """Compare and exchange: if the 64 bits at an address are `before`, sets them to `after`; whether it did."""
        return self.extract_value(self.cmpxchg(place, before, after, "seq_cst", "seq_cst"), 1)

    def spin(self, waiting: Callable, nanoseconds: int) -> None:
        """Polls while `waiting()` is true, for at most `nanoseconds`."""
        deadline = self.add(self.sleep.now(), nanoseconds)
        with self.repeat(lambda go: go, [waiting()]) as again:
            for _ in range(4):
                self.rest()
            again.carry(self.and_(waiting(), self.icmp_signed("<", self.sleep.now(), deadline)))

    def rest(self) -> None:
        """A spin-loop hint to the processor."""
        if platform.machine() in ("x86_64", "AMD64"):
            self.external("llvm.x86.sse2.pause", ir.VoidType())
        elif platform.machine() in ("aarch64", "arm64"):
            self.external("llvm.aarch64.hint", ir.VoidType(), self.index(1, I32))

    def scratch(self, job, place):
        """The working memory of one of the threads of a job."""
        return self.at(self.get(self.at(job, SCRATCH), PTR, 8), place, self.get(self.at(job, STRIDE), I64, 8))

    def run(self, job, scratch, budget) -> None:
        kernel, arguments = (self.get(self.at(job, slot), PTR, 8) for slot in (KERNEL, ARGUMENTS))
        self.call(Callee(kernel, RUN), [arguments, scratch, budget])


def write(sleep: str) -> ir.Module:
    """The module with all functions, for threads that wait by one of the methods in `WAITING`."""
    module = ir.Module("regard")
    _work(_Writer(module, "work", sleep))
    _share(_Writer(module, "share", sleep))
    _team(_Writer(module, "team", sleep), _member(_Writer(module, "member", sleep)))
    return module


def _work(code: _Writer) -> None:
    """`work(mailbox, unused, bell)`: the loop of a worker, which never returns."""
    mailbox = code.args[0]
    post, asleep = code.at(mailbox, POST), code.at(mailbox, ASLEEP)
    empty = code.index(0)
    always = code.append_basic_block("always")
    code.branch(always)
    code.position_at_end(always)
    code.spin(lambda: code.icmp_signed("==", code.atomic_load(post), empty), SPIN)
    job = code.atomic_load(post)
    with code.if_else(code.icmp_signed("==", job, empty)) as (nothing, something):
        with nothing:
            # The caller reads `asleep` after it has posted, and the worker reads the post after it has set `asleep`, so
            # a wakeup cannot be lost.
            code.set(asleep, 1, I32)
            with code.when(code.icmp_signed("==", code.atomic_load(post), empty)):
                code.sleep.wait(asleep, code.index(1, I32), None)
            code.set(asleep, 0, I32)
        with something, code.when(code.swap(post, job, code.index(TAKEN))):
            _help(code, code.inttoptr(job, PTR), post)
    code.branch(always)


def _help(code: _Writer, job, post) -> None:
    """Runs a worker's share of a job in separate working memory; the last worker wakes a sleeping caller."""
    place = code.atomic_rmw("add", code.at(job, ENTERED), code.index(1), "seq_cst")
    code.run(job, code.scratch(job, code.add(place, 1)), code.index(ENDLESS))
    code.set(post, 0)
    pending = code.at(job, PENDING)
    before = code.atomic_rmw("sub", pending, code.index(1, I32), "seq_cst")
    with code.when(code.icmp_signed("==", before, AWAITED | 1)):
        code.sleep.wake(pending)


def _share(code: _Writer) -> None:
    """`share(job, first mailbox, bell)`: runs a job with the idle workers; `left`: whether to call it again."""
    job, first, _ = code.args
    _post(code, job, first)
    left = code.at(job, LEFT)
    unfinished = _tasks(code, job, code.get(code.at(job, SCRATCH), PTR, 8))
    code.put(code.zext(unfinished, I64), left, 8)
    with code.when(unfinished):
        code.ret_void()
    _retract(code, job, first)
    code.put(code.zext(_wait(code, job), I64), left, 8)
    code.ret_void()


def _post(code: _Writer, job, first) -> None:
    """Posts the job to empty mailboxes, one per helper, only once, and wakes sleeping workers."""
    helpers, pending = code.at(job, HELPERS), code.at(job, PENDING)
    wanted, address = code.get(helpers, I64, 8), code.ptrtoint(job, I64)
    code.put(0, helpers, 8)

    def continues(mailbox, wanted):
        return code.and_(code.icmp_signed("!=", mailbox, ir.Constant(PTR, None)), code.icmp_signed(">", wanted, 0))

    with code.repeat(continues, [first, wanted]) as mailboxes:
        mailbox, wanted = mailboxes.carried
        post, asleep = code.at(mailbox, POST), code.at(mailbox, ASLEEP)
        code.put(wanted, code.count, 8)
        with code.when(code.icmp_signed("==", code.atomic_load(post), 0)):
            code.atomic_rmw("add", pending, code.index(1, I32), "seq_cst")
            with code.if_else(code.swap(post, code.index(0), address)) as (posted, lost):
                with posted:
                    code.put(code.sub(wanted, 1), code.count, 8)
                    with code.when(code.icmp_signed("==", code.atomic_load(asleep, I32), 1)):
                        code.set(asleep, 0, I32)
                        code.sleep.wake(asleep)
                with lost:
                    code.atomic_rmw("sub", pending, code.index(1, I32), "seq_cst")
        mailboxes.carry(code.get(code.at(mailbox, NEXT), PTR, 8), code.get(code.count, I64, 8))


def _tasks(code: _Writer, job, scratch):
    """Runs tasks for a slice of time, in portions that grow until one takes an eighth of it; whether tasks are left."""
    arguments = code.get(code.at(job, ARGUMENTS), PTR, 8)
    counter, tasks = code.get(arguments, PTR, 8), code.get(code.at(arguments, 8), I64, 8)

    def unfinished():
        return code.icmp_signed("<", code.atomic_load(counter), tasks)

    begun = code.sleep.now()
    with code.repeat(lambda go, *_: go, [unfinished(), begun, 1]) as portion:
        _, before, size = portion.carried
        code.run(job, scratch, size)
        after = code.sleep.now()
        short = code.icmp_signed("<", code.sub(after, before), SLICE // 8)
        in_time = code.icmp_signed("<", code.sub(after, begun), SLICE)
        portion.carry(code.and_(unfinished(), in_time), after, code.select(short, code.add(size, size), size))
    return unfinished()


def _retract(code: _Writer, job, first) -> None:
    """Removes the job from the mailboxes of workers that have not started."""
    pending, address = code.at(job, PENDING), code.ptrtoint(job, I64)
    with code.repeat(lambda mailbox: code.icmp_signed("!=", mailbox, ir.Constant(PTR, None)), [first]) as mailboxes:
        post = code.at(mailboxes.carried[0], POST)
        with (
            code.when(code.icmp_signed("==", code.atomic_load(post), address)),
            code.when(code.swap(post, address, code.index(0))),
        ):
            code.atomic_rmw("sub", pending, code.index(1, I32), "seq_cst")
        mailboxes.carry(code.get(code.at(mailboxes.carried[0], NEXT), PTR, 8))


def _wait(code: _Writer, job):
    """Waits until no worker runs the job, or a slice is over; whether one still does."""
    pending = code.at(job, PENDING)

    def busy(value=None):
        value = code.atomic_load(pending, I32) if value is None else value
        return code.icmp_signed("!=", code.and_(value, AWAITED - 1), 0)

    code.spin(busy, PATIENCE)
    with code.when(busy()):
        awaited = code.index(AWAITED, I32)
        value = code.or_(code.atomic_rmw("or", pending, awaited, "seq_cst"), awaited)
        with code.when(busy(value)):
            code.sleep.wait(pending, value, SLICE)
    return busy()


# the threads of OpenMP ------------------------------------------------------------------------------------------------

PARALLEL = ir.FunctionType(ir.VoidType(), [PTR, PTR, I32, I32])  # GOMP_parallel(function, data, threads, flags)


def _member(code: _Writer) -> ir.Function:
    """`member(job)`: the work of each thread of a team, unless enough threads have entered already."""
    job = code.args[0]
    place = code.atomic_rmw("add", code.at(job, ENTERED), code.index(1), "seq_cst")
    with code.when(code.icmp_signed("<=", place, code.get(code.at(job, HELPERS), I64, 8))):
        _tasks(code, job, code.scratch(job, place))
    code.ret_void()
    return code.function


def _team(code: _Writer, member: ir.Function) -> None:
    """`team(job, GOMP_parallel, threads)`: runs a slice of a job on OpenMP's threads; `left` as in `share`."""
    job, parallel, threads = code.args
    code.put(0, code.at(job, ENTERED), 8)
    code.call(Callee(parallel, PARALLEL), [member, job, code.trunc(threads, I32), code.index(0, I32)])
    arguments = code.get(code.at(job, ARGUMENTS), PTR, 8)
    unfinished = code.icmp_signed(
        "<", code.atomic_load(code.get(arguments, PTR, 8)), code.get(code.at(arguments, 8), I64, 8)
    )
    code.put(code.zext(unfinished, I64), code.at(job, LEFT), 8)
    code.ret_void()
