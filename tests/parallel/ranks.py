"""Simulated ranks: each is a thread of this process, and bytes go through lists."""

import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np


class Simulated:
    """A `Transport` between threads. sent: the bytes that this rank has sent to each rank."""

    def __init__(self, rank, ranks, board, barrier):
        self.rank, self.ranks, self.board, self.barrier = rank, ranks, board, barrier
        self.sent, self.count = np.zeros(ranks, np.int64), 0

    def swap(self, step, outgoing, going, coming):
        self.count += 1
        number = self.count
        self.board[number, self.rank] = step, np.split(np.array(outgoing), np.cumsum(going)[:-1])
        self.sent += going

        def wait():
            self.barrier.wait(120)
            steps = {self.board[number, other][0] for other in range(self.ranks)}
            assert steps == {step}, steps
            found = [self.board[number, other][1][self.rank] for other in range(self.ranks)]
            assert [each.size for each in found] == [*coming], (step, coming)
            return found

        return wait


def _in_threads(works, barriers):
    """What each of the functions returned, each in a thread; the first error of one is raised."""

    def run(work):
        try:
            return work()
        except BaseException:
            for barrier in barriers:
                barrier.abort()
            raise

    with ThreadPoolExecutor(len(works)) as pool:
        waiting = [pool.submit(run, work) for work in works]
        errors = [error for each in waiting if (error := each.exception()) is not None]
        for error in sorted(errors, key=lambda error: isinstance(error, threading.BrokenBarrierError)):
            raise error
        return [each.result() for each in waiting]


def on_ranks(ranks, work):
    """[work(transport) on each rank]; the first error of a rank is raised."""
    return [*on_mesh(ranks, 1, lambda transport, _: work(transport)).values()]


def on_mesh(rows, heads, work):
    """{(row, part): work(transport of the rows, transport of the heads)} of the ranks of a mesh."""
    columns = [({}, threading.Barrier(rows)) for _ in range(heads)]
    lines = [({}, threading.Barrier(heads)) for _ in range(rows)]
    works = {
        (row, part): partial(work, Simulated(row, rows, *columns[part]), Simulated(part, heads, *lines[row]))
        for row in range(rows)
        for part in range(heads)
    }
    return dict(zip(works, _in_threads([*works.values()], [barrier for _, barrier in (*columns, *lines)]), strict=True))
