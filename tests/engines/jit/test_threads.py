"""Threads: what they may not change, who may call, and what an interrupt, a fork or the end of the process leaves
behind.
"""

import concurrent.futures
import time

import numpy as np
import pytest

from regard.engines.jit import launch, pool, threads
from regard.engines.jit.code import build
from regard.engines.jit.code.target import host
from tests.support.kernels import fresh
from tests.support.lanes import sweep

# ---- tasks -----------------------------------------------------------------------------------------------------------


def counting(name: str = "counting", nap: int = 0) -> build.Kernel:
    """A kernel that adds one to ticks[task], after a nap of so many turns, and keeps to its budget.

    Block: counter, tasks, ticks. Its working memory holds the number of its own tasks, to be seen by others if it were
    shared.
    """
    from llvmlite import ir

    from regard.engines.jit.code.ir import I64, PTR, Code

    def write() -> ir.Module:
        module = ir.Module("regard")
        function = ir.Function(module, pool.RUN, name)
        code = Code(function.append_basic_block("entry"))
        block, scratch, budget = function.args
        counter, tasks = code.get(block, PTR, 8), code.get(code.at(block, 8), I64, 8)
        ticks = code.get(code.at(block, 16), PTR, 8)

        def take(left):
            return code.atomic_rmw(
                "add", counter, code.zext(code.icmp_signed(">", left, code.index(0)), I64), "monotonic"
            )

        def goes_on(number, left):
            return code.and_(code.icmp_signed("<", number, tasks), code.icmp_signed(">", left, code.index(0)))

        with code.repeat(goes_on, [take(budget), budget]) as taken:
            number, left = taken.carried
            with code.loop(code.index(0), code.index(nap)) as turn:
                code.atomic_rmw("xchg", scratch, turn.index, "monotonic")
            place = code.at(ticks, code.mul(number, code.index(8)))
            code.put(code.add(code.get(place, I64, 8), code.index(1)), place, 8)
            left = code.sub(left, code.index(1))
            taken.carry(take(left), left)
        code.ret_void()
        return module

    return build.compiled(f"{name} {nap}", host(), write, name)


class Ticks:
    """A call of `counting`: how often each task was done."""

    def __init__(self, tasks: int, nap: int = 0):
        self.kernel, self.counter, self.ticks = counting(nap=nap), np.zeros(1, np.int64), np.zeros(tasks, np.int64)
        self.block = np.array([self.counter.ctypes.data, tasks, self.ticks.ctypes.data], np.int64)

    def run(self, workers: int) -> None:
        launch.Workspace(self.kernel, self.block, 64, workers, (self.counter, self.ticks)).run()


@pytest.mark.parametrize("workers", [1, 2, 7])
@pytest.mark.parametrize("tasks", [0, 1, 2, 1000])
def test_every_task_is_done_once(workers, tasks):
    """More workers than tasks, more tasks than workers, more workers than cores: each task once."""
    for _ in range(50):
        call = Ticks(tasks)
        call.run(workers)
        assert (call.ticks == 1).all()


def test_callers_share_the_workers():
    """Calls from eight threads at once, each of which wants helpers: each does its own tasks, all of them, once."""
    wrong = []

    def calls(_):
        for _ in range(300):
            call = Ticks(40, nap=50)
            call.run(3)
            wrong.extend(call.ticks[call.ticks != 1])

    with concurrent.futures.ThreadPoolExecutor(8) as callers:
        list(callers.map(calls, range(8)))
    assert wrong == []


@pytest.mark.parametrize("way", ["futex", "condition"])
@pytest.mark.skipif(pool.waiting_here() != "futex", reason="this machine has one way to wait")
def test_both_ways_to_wait(way, monkeypatch):
    """Linux waits by futex, other systems by condition: both wake for work, from a spin and from a sleep, and end
    every call.
    """
    crew = threads.Crew(way)
    crew.grow(2)
    monkeypatch.setattr(threads, "crew", lambda wanted, own=False: crew)
    for pause in (0, 0, 0.001, 0, 0.01):
        time.sleep(pause)
        for _ in range(100):
            call = Ticks(64, nap=300)
            call.run(3)
            assert (call.ticks == 1).all()


# ---- torch -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_torch_lends_its_threads():
    """Where torch has threads running they do the work: the same bits as with one thread; in a child they are not
    there.
    """
    script = """
        import os, threading, numpy as np, torch, regard as rg
        from regard.engines.jit import threads
        torch.set_num_threads(3)
        q = np.random.default_rng(0).standard_normal((8, 400, 64), dtype=np.float32)
        with threads.limit(1):
            expected = rg.attention(q, q, q)
        with threads.limit(3):
            team = threads.crew(2)
            assert isinstance(team, threads.Team), team
            assert isinstance(threads.crew(3), threads.Crew)  # torch has fewer
            for _ in range(20):
                torch.ones(300, 300) @ torch.ones(300, 300)
                assert np.array_equal(expected, rg.attention(q, q, q))
            with threads.limit(2):  # fewer than there are in the team
                assert np.array_equal(expected, rg.attention(q, q, q))

            found = []
            others = [threading.Thread(target=lambda: found.append(rg.attention(q, q, q))) for _ in range(6)]
            for thread in others: thread.start()
            for thread in others: thread.join()
            assert all(np.array_equal(expected, each) for each in found) and len(found) == 6

            child = os.fork()
            if child == 0:
                right = isinstance(threads.crew(2), threads.Crew) and np.array_equal(expected, rg.attention(q, q, q))
                os._exit(0 if right else 1)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert fresh(script) == "0"


@pytest.mark.parametrize("workers", [2, 7])
def test_a_team_does_every_task_once(workers):
    """More tasks than threads, and more threads requested than the team has."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        assert isinstance(threads.crew(1), threads.Team)
        for tasks in (0, 1, 2, 1000):
            call = Ticks(tasks, nap=50)
            call.run(workers)
            assert (call.ticks == 1).all()
    finally:
        torch.set_num_threads(before)


# ---- interrupts ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_interrupted_call_leaves_the_next_one_alone():
    """Ctrl-C ends a call with KeyboardInterrupt, and what is computed afterwards is right."""
    script = """
        import signal, numpy as np, regard as rg
        from regard.engines.jit import launch, threads
        rng = np.random.default_rng(0)
        long = [rng.standard_normal((2, rows, 64), dtype=np.float32) for rows in (64, 400_000, 400_000)]
        short = [rng.standard_normal((8, 300, 64), dtype=np.float32) for _ in range(3)]
        armed = False

        def strike(*_):
            if armed:
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, strike)
        with threads.limit(2):
            expected, interrupted = rg.attention(*short), 0
            rg.attention(*long)
            for trial in range(8):
                signal.setitimer(signal.ITIMER_REAL, 0.002 + 0.004 * trial, 0.01)
                try:
                    try:
                        armed = True
                        rg.attention(*long)
                    finally:
                        armed = False
                except KeyboardInterrupt:
                    armed = False
                    interrupted += 1
                assert np.array_equal(expected, rg.attention(*short))
            signal.setitimer(signal.ITIMER_REAL, 0)
        print(interrupted, len(launch._busy))
    """
    interrupted, busy = map(int, fresh(script).split())
    assert interrupted > 0
    assert busy == 0


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.parametrize("before", ["", "import torch"], ids=["own", "torch"])
@pytest.mark.parametrize("workers", [1, 2])
def test_ctrl_c_ends_a_long_call_soon(workers, before):
    """SIGINT during a call of many seconds: KeyboardInterrupt within half a second of each core, then what is right."""
    script = f"""
        {before}
        import os, signal, threading, time, numpy as np, regard as rg
        from regard.engines.jit import threads
        short = np.random.default_rng(0).standard_normal((8, 300, 64), dtype=np.float32)
        long = np.random.default_rng(0).standard_normal((8, 60_000, 64), dtype=np.float32)
        sent = []

        def interrupt():
            sent.append(time.process_time())
            os.kill(os.getpid(), signal.SIGINT)

        with threads.limit({workers}):
            expected = rg.attention(short, short, short)
            threading.Timer(0.3, interrupt).start()
            try:
                rg.attention(long, long, long)
            except KeyboardInterrupt:
                print(time.process_time() - sent[0])
            assert np.array_equal(expected, rg.attention(short, short, short))
    """
    assert float(fresh(script)) < 1


@pytest.mark.slow
@pytest.mark.parametrize("before", ["import torch", *sweep("")])
def test_ctrl_c_ends_long_tasks_soon(before):
    """SIGINT during tasks that take seconds each: rows over ten million keys (one row, broadcast), in the compiled
    engine, in calls that were made before, in statistics, and in the reference.
    """
    script = f"""
        {before}
        import os, signal, threading, time, numpy as np, regard as rg
        from regard.engines.jit import launch, threads
        rng = np.random.default_rng(0)
        short = rng.standard_normal((8, 300, 64), dtype=np.float32)
        q = rng.standard_normal((1, 1024, 64), dtype=np.float32)
        k = np.broadcast_to(rng.standard_normal((1, 1, 64), dtype=np.float32), (1, 10_000_000, 64))
        some = k[:, :20_000]
        wide = np.broadcast_to(rng.standard_normal((1, 1, 512), dtype=np.float32), (1, 200_000, 512))
        cache = rg.KVCache(heads=1, depth=64)
        calls = [
            lambda: rg.attention(q, k, k),
            lambda: rg.attention(q, k, k),
            lambda: rg.attention_with_lse(q, k, k, score=rg.softcap(5.0)),
            lambda: rg.attention_stats(q, k, of=["entropy"]),
            lambda: rg.attention(wide[:, :64], wide, wide, engine="reference"),
            lambda: rg.attention_weights(q, k, keys=[0]),
        ]
        if {before!r}:
            import torch
            x, y = torch.from_numpy(q), torch.from_numpy(np.ascontiguousarray(k[:, :1])).expand(1, 10_000_000, 64)
            calls += [lambda: rg.attention(x, y, y)] * 2
        sent = []

        def interrupt():
            sent.append(time.process_time())
            os.kill(os.getpid(), signal.SIGINT)

        for workers in (1, 2):
            with threads.limit(workers):
                rg.attention(q, some, some), rg.attention_stats(q, some, of=["entropy"])
                rg.attention_with_lse(q, some, some, score=rg.softcap(5.0))
                expected = rg.attention(short, short, short)
                for call in calls:
                    threading.Timer(0.7, interrupt).start()
                    try:
                        call()
                    except KeyboardInterrupt:
                        print(round(time.process_time() - sent[-1], 2))
                    assert np.array_equal(expected, rg.attention(short, short, short))
                    assert not launch._busy
    """
    taken = [float(word) for word in fresh(script).split()]
    assert len(taken) == (16 if before else 12)
    assert max(taken) < 2, str(taken)  # of two cores, where the whole call takes ten


def test_a_handler_may_call_attention():
    """A handler of signals that runs in the middle of a call may make calls of its own: both are right."""
    script = """
        import signal, numpy as np, regard as rg
        from regard.engines.jit import threads
        short = np.random.default_rng(0).standard_normal((8, 300, 64), dtype=np.float32)
        long = np.random.default_rng(0).standard_normal((4, 6_000, 64), dtype=np.float32)
        with threads.limit(2):
            expected, found = [rg.attention(x, x, x) for x in (short, long)], []
            signal.signal(signal.SIGALRM, lambda *_: found.append(rg.attention(short, short, short)))
            signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
            again = rg.attention(long, long, long)
            signal.setitimer(signal.ITIMER_REAL, 0)
        assert np.array_equal(expected[1], again)
        assert all(np.array_equal(expected[0], each) for each in found)
        print(len(found))
    """
    assert int(fresh(script)) > 0


# ---- fork ------------------------------------------------------------------------------------------------------------


def test_a_forked_child_computes():
    """After a fork the child has no worker threads, and makes its own."""
    script = """
        import os, numpy as np, regard as rg
        from regard.engines.jit import threads
        q = np.random.default_rng(0).standard_normal((8, 400, 64), dtype=np.float32)
        with threads.limit(3):
            expected = rg.attention(q, q, q, engine="jit")
            child = os.fork()
            if child == 0:
                right = threads._crew is None
                right = np.array_equal(expected, rg.attention(q, q, q, engine="jit")) and right
                right = threads._crew.size == 2 and right
                os._exit(0 if right else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """
    assert fresh(script) == "0"


@pytest.mark.sweep
@pytest.mark.slow
def test_a_fork_while_another_thread_computes():
    """Children forked in the middle of calls, compilations and plans of other threads compute, compile and plan."""
    script = """
        import os, threading, numpy as np, regard as rg
        from regard.engines.jit import threads
        q = np.random.default_rng(0).standard_normal((4, 400, 64), dtype=np.float32)
        expected = rg.attention(q, q, q, mask=rg.window(30))
        done = threading.Event()

        def others(number):
            depth = 1
            while not done.is_set():
                depth += 1
                rg.attention(q, q, q, mask=rg.window(depth))
                rg.attention(q[..., :depth % 60 + 2 + number], q[..., :depth % 60 + 2 + number], q, mask=rg.causal())

        threads_ = [threading.Thread(target=others, args=(number,)) for number in range(2)]
        for thread in threads_: thread.start()
        codes = []
        for trial in range(15):
            child = os.fork()
            if child == 0:
                right = np.array_equal(expected, rg.attention(q, q, q, mask=rg.window(30)))
                rg.attention(q[..., :63 + trial % 2], q[..., :63 + trial % 2], q, mask=rg.causal() | (rg.key < trial))
                os._exit(0 if right else 1)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        done.set()
        for thread in threads_: thread.join()
        print(set(codes))
    """
    assert fresh(script) == "{0}"


# ---- the end of the process ------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.spread
@pytest.mark.parametrize("before", ["", "import torch"], ids=["own", "torch"])
@pytest.mark.parametrize("moment", ["asleep", *sweep("awake"), "working", "forked"])
def test_the_process_ends_whatever_workers_do(moment, before):
    """Workers asleep, awake, or in the middle of a daemon thread's call: the process ends at once, with exit code 0."""
    script = f"""
        {before}
        import os, sys, threading, time, numpy as np, regard as rg
        from regard.engines.jit import threads
        q = np.random.default_rng(0).standard_normal((8, 400, 64), dtype=np.float32)
        long = np.random.default_rng(0).standard_normal((8, 60_000, 64), dtype=np.float32)
        with threads.limit(4):
            rg.attention(q, q, q)

        def many_seconds():
            with threads.limit(2):
                rg.attention(long, long, long)

        if {moment!r} == "asleep":
            time.sleep(0.05)
        if {moment!r} == "working":
            threading.Thread(target=many_seconds, daemon=True).start()
            time.sleep(0.2)
        if {moment!r} == "forked":
            child = os.fork()
            rg.attention(q, q, q)
            if child == 0:
                sys.exit(0)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        print("done")
    """
    assert fresh(script) == "done"


# ---- limits ----------------------------------------------------------------------------------------------------------


def test_a_limit_is_kept():
    """`limit(1)` works on the calling thread alone; a larger limit may use more threads than there are cores."""
    with threads.limit(1):
        assert threads.count() == 1
        with threads.limit(3):
            assert threads.count() == 3
        assert threads.count() == 1
    with pytest.raises(ValueError, match="at least one thread is needed, not 0"):
        threads.limit(0)
