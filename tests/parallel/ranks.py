"""Simulated ranks: each is a thread of this process, and bytes go through lists."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

__all__ = ["Simulated", "on_ranks"]


class Simulated:
    """A `Transport` between threads. sent: the bytes that this rank has sent to each rank."""

    def __init__(self, rank, ranks, board, barrier):
        self.rank, self.ranks, self.board, self.barrier = rank, ranks, board, barrier
        self.sent, self.count = np.zeros(ranks, np.int64), 0

    def swap(self, step, outgoing, incoming):
        self.count += 1
        number = self.count
        self.board[number, self.rank] = step, [np.array(each) for each in outgoing]
        self.sent += [each.size for each in outgoing]

        def wait():
            self.barrier.wait(120)
            steps = {self.board[number, other][0] for other in range(self.ranks)}
            assert steps == {step}, steps
            found = [self.board[number, other][1][self.rank] for other in range(self.ranks)]
            assert [each.size for each in found] == list(incoming), (step, incoming)
            return found

        return wait

    def gather(self, step, message):
        return [
            each.tobytes()
            for each in self.swap(step, [np.frombuffer(message, np.uint8)] * self.ranks, [len(message)] * self.ranks)()
        ]


def on_ranks(ranks, work):
    """[work(transport) on each rank]; the first error of a rank is raised."""
    board, barrier = {}, threading.Barrier(ranks)

    def run(rank):
        try:
            return work(Simulated(rank, ranks, board, barrier))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(ranks) as pool:
        waiting = [pool.submit(run, rank) for rank in range(ranks)]
        errors = [each.exception() for each in waiting]
        errors.sort(key=lambda error: isinstance(error, threading.BrokenBarrierError))
        for error in errors:
            if error is not None:
                raise error
        return [each.result() for each in waiting]


def on_mesh(rows, heads, work):
    """{(row, part): work(transport of the rows, transport of the heads)} of the ranks of a mesh."""
    boards = (
        [({}, threading.Barrier(rows)) for _ in range(heads)],
        [({}, threading.Barrier(heads)) for _ in range(rows)],
    )
    places = [(row, part) for row in range(rows) for part in range(heads)]

    def run(row, part):
        try:
            return work(Simulated(row, rows, *boards[0][part]), Simulated(part, heads, *boards[1][row]))
        except BaseException:
            for _, barrier in (*boards[0], *boards[1]):
                barrier.abort()
            raise

    with ThreadPoolExecutor(len(places)) as pool:
        waiting = [pool.submit(run, *each) for each in places]
        errors = sorted(
            (each.exception() for each in waiting), key=lambda one: isinstance(one, threading.BrokenBarrierError)
        )
        for error in errors:
            if error is not None:
                raise error
        return dict(zip(places, (each.result() for each in waiting), strict=True))
