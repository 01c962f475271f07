"""Traffic: which pages each rank needs and receives, and the bytes that ranks send each other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .work import PAGE, Sizes, Work, sums

CELLS = 1 << 22  # ranks × pages that are marked at a time


class Flow(NamedTuple):
    """Per rank: bytes received and sent (int64)."""

    bytes_in: np.ndarray
    bytes_out: np.ndarray


@dataclass(frozen=True)
class Marks:
    """For some consecutive ranks, from `start` on: which pages their rows read and other ranks hold (ranks, pages)."""

    start: int
    foreign: np.ndarray

    @property
    def ranks(self) -> slice:
        return slice(self.start, self.start + len(self.foreign))


def flow(work: Work, owner: np.ndarray, worker: np.ndarray, ranks: int) -> Flow:
    """The pages and bytes of every rank.

    A rank receives each page that its rows read and that it does not hold, once. Where a block of rows is computed by
    another rank than the one that holds it, its query goes there, and its output and lse return.
    """
    sizes = work.sizes
    bytes_in = np.zeros(ranks, np.int64)
    readers = np.zeros(sizes.pages, np.int64)
    short = PAGE * sizes.pages - sizes.tokens  # tokens that the last page lacks
    for marks in marks_of(work, owner, worker, ranks):
        received = np.count_nonzero(marks.foreign, axis=1)
        bytes_in[marks.ranks] = sizes.key_bytes * (PAGE * received - short * marks.foreign[:, -1])
        readers += np.count_nonzero(marks.foreign, axis=0)
    bytes_out = sizes.key_bytes * sums(owner, readers * sizes.heights, ranks)
    lent = lent_bytes(sizes, owner, worker, ranks)
    return Flow(bytes_in + lent.bytes_in, bytes_out + lent.bytes_out)


def lent_bytes(sizes: Sizes, owner: np.ndarray, worker: np.ndarray, ranks: int) -> Flow:
    """The bytes of rows that another rank computes: queries to the worker, outputs and lse back to the owner."""
    away = owner != worker
    heights, owner, worker = sizes.heights[away], owner[away], worker[away]
    queries, results = heights * sizes.query_bytes, heights * sizes.result_bytes
    return Flow(
        bytes_in=sums(worker, queries, ranks) + sums(owner, results, ranks),
        bytes_out=sums(owner, queries, ranks) + sums(worker, results, ranks),
    )


def routes(work: Work, owner: np.ndarray, worker: np.ndarray, ranks: int) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, pages): what rank t receives from rank s is pages[offsets[t·R + s] : offsets[t·R + s + 1]]."""
    order = np.argsort(owner, kind="stable")  # the pages of one rank after those of another: nothing is sorted later
    counts, pages = np.zeros(ranks * ranks, np.int64), []
    for marks in marks_of(work, owner, worker, ranks):
        target, place = np.nonzero(marks.foreign[:, order])
        page = order[place]
        counts += np.bincount((target + marks.start) * ranks + owner[page], minlength=ranks * ranks)
        pages.append(page.astype(np.int32))
    return np.append(0, np.cumsum(counts)), np.concatenate(pages)


def marks_of(work: Work, owner: np.ndarray, worker: np.ndarray, ranks: int) -> Iterator[Marks]:
    """The pages that are needed, a bounded number of ranks at a time.

    A run of pages is +1 where it begins and −1 where it ends: the running sum counts the runs over each page.
    """
    pages = work.sizes.pages
    rank = worker[work.block]
    order = np.argsort(rank, kind="stable")
    rank, first, last = rank[order], work.first[order], work.last[order]
    step = max(1, CELLS // (pages + 1))
    for start in range(0, ranks, step):
        count = min(step, ranks - start)
        mine = slice(*np.searchsorted(rank, [start, start + count]))
        row = (rank[mine] - start) * (pages + 1)
        edges = np.bincount(row + first[mine], minlength=count * (pages + 1))
        edges -= np.bincount(row + last[mine], minlength=count * (pages + 1))
        needed = np.cumsum(edges.astype(np.int32).reshape(count, pages + 1), axis=1, dtype=np.int32)[:, :-1] > 0
        foreign = needed & (owner != np.arange(start, start + count)[:, None])
        yield Marks(start, foreign)
