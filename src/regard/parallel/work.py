"""Work: the sizes of a call, what its plan visits in blocks of 128 rows and pages of 128 keys, which rows another rank
computes, which pages travel, bytes, and how long that takes at least.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from ..common.dtypes import FLOATS
from ..engines.plan import plan
from ..language.problem import Problem

PAGE = 128  # tokens of a page, and rows of a block
LOW = 26  # bits of the lower part of a number that is summed


@dataclass(frozen=True)
class Sizes:
    """The sizes of one sequence whose attention is computed on several ranks.

    Args:
        tokens: rows, and keys.
        heads: query heads.
        key_heads: key/value heads, which divide `heads`.
        depth: numbers of a query and of a key, for each head.
        value_depth: numbers of a value, for each head.
        dtype: of all arrays: float32, float64, float16 or bfloat16.

    Examples:
        >>> import regard.parallel as rp
        >>> sizes = rp.Sizes(tokens=1000, heads=32, key_heads=8, depth=128, value_depth=128, dtype="bfloat16")
        >>> sizes.pages, sizes.key_bytes, sizes.row_bytes
        (8, 4096, 16384)
    """

    tokens: int
    heads: int
    key_heads: int
    depth: int
    value_depth: int
    dtype: str

    @property
    def pages(self) -> int:
        """Number of pages, and of blocks of rows."""
        return -(-self.tokens // PAGE)

    @property
    def heights(self) -> np.ndarray:
        """Tokens of each page (int64); the last page may have fewer than 128."""
        heights = np.full(self.pages, PAGE, np.int64)
        heights[-1] = self.tokens - (self.pages - 1) * PAGE
        return heights

    @property
    def key_bytes(self) -> int:
        """Bytes of the key and the value of one token, all key heads."""
        return self.key_heads * self.row_numbers * FLOATS[self.dtype].itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of the query and the output of one token, all heads."""
        return self.heads * self.row_numbers * FLOATS[self.dtype].itemsize

    @property
    def row_numbers(self) -> int:
        """Numbers of a key and a value, or of a query and an output, for one head."""
        return self.depth + self.value_depth

    @property
    def query_bytes(self) -> int:
        """Bytes of the query of one token, all heads."""
        return self.heads * self.depth * FLOATS[self.dtype].itemsize

    @property
    def result_bytes(self) -> int:
        """Bytes of the output and of lse of one token, all heads."""
        item = FLOATS[self.dtype]
        return self.heads * (self.value_depth * item.itemsize + FLOATS[item.sums].itemsize)


@dataclass(frozen=True, eq=False)
class Work:
    """What a call has to do.

    pairs: of each block of rows, the pairs of query and key in the tiles that are visited, over all heads (int64).
    block, first, last: of each run of keys, its block of rows, its first page, and one past its last.
    """

    sizes: Sizes
    pairs: np.ndarray
    block: np.ndarray
    first: np.ndarray
    last: np.ndarray

    @classmethod
    def of(cls, sizes: Sizes, mask: Any) -> tuple[Work, str]:
        """The work under a mask, and the mask as text. A page travels with all its key heads, so heads are merged."""
        nothing = np.zeros((), FLOATS["float32"].numpy)
        q = np.broadcast_to(nothing, (1, sizes.heads, sizes.tokens, 1))
        k = np.broadcast_to(nothing, (1, sizes.key_heads, sizes.tokens, 1))
        problem = Problem.of(q, k, k, where="place", mask=mask)
        return replace(cls.over(problem), sizes=sizes), "every pair" if problem.mask is None else str(problem.mask)

    @classmethod
    def over(cls, whole: Problem) -> Work:
        """The work of a checked problem whose rows and keys are all tokens; batch entries and heads are merged."""
        dims = whole.dims
        sizes = Sizes(dims["Q"], dims["H"], dims["G"], dims["D"], dims["E"], whole.dtype.name)
        found = plan(whole, PAGE, PAGE)
        block = found.tile_of % sizes.pages
        first, last = found.runs[:, 0].astype(np.int64), found.runs[:, 1].astype(np.int64)
        area = (last - first) * found.heights * found.copies
        return cls(sizes, sums(block, area, sizes.pages), block, first // PAGE, -(-last // PAGE))


def positions_of(pages: np.ndarray, tokens: int) -> np.ndarray:
    """The positions of the tokens of some pages, in order (int64)."""
    found = (pages.astype(np.int64)[:, None] * PAGE + np.arange(PAGE)).ravel()
    return found[found < tokens]


def stripe_of(key_heads: int) -> int:
    """Key heads that travel at a time by default: a quarter of them."""
    return max(1, -(-key_heads // 4))


def sums(place: np.ndarray, numbers: np.ndarray, size: int) -> np.ndarray:
    """The sums of the numbers (int64) at each place, exactly: `bincount` adds floats, so two parts are summed.

    >>> sums(np.array([0, 1, 1]), np.array([5, (1 << 53) + 1, 1 << 53]), 2).tolist() == [5, (1 << 54) + 1]
    True
    """
    high, low = numbers >> LOW, numbers & ((1 << LOW) - 1)
    return (np.bincount(place, high, size).astype(np.int64) << LOW) + np.bincount(place, low, size).astype(np.int64)


CELLS = 1 << 22  # ranks × pages that are marked at a time


class Flow(NamedTuple):
    """Per rank: bytes received and sent (int64)."""

    bytes_in: np.ndarray
    bytes_out: np.ndarray


def flow(work: Work, owner: np.ndarray, worker: np.ndarray, ranks: int) -> Flow:
    """The pages and bytes of every rank.

    A rank receives each page that its rows read and that it does not hold, once. Where a block of rows is computed by
    another rank than the one that holds it, its query goes there, and its output and lse return.
    """
    sizes = work.sizes
    bytes_in = np.zeros(ranks, np.int64)
    readers = np.zeros(sizes.pages, np.int64)
    short = PAGE * sizes.pages - sizes.tokens  # tokens that the last page lacks
    for start, foreign in needed(work, worker, ranks, without=owner):
        received = PAGE * np.count_nonzero(foreign, axis=1) - short * foreign[:, -1]
        bytes_in[start : start + len(received)] = sizes.key_bytes * received
        readers += np.count_nonzero(foreign, axis=0)
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


def routes(
    work: Work, owner: np.ndarray, worker: np.ndarray, ranks: int, *, own: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(offsets, pages): what rank t receives from rank s is pages[offsets[t·R + s] : offsets[t·R + s + 1]].

    own: whether the pages that a rank reads and holds are among them, from itself.
    """
    order = np.argsort(owner, kind="stable")  # the pages of one rank after those of another: nothing is sorted later
    counts, pages = np.zeros(ranks * ranks, np.int64), []
    for start, marks in needed(work, worker, ranks, without=None if own else owner):
        target, place = np.nonzero(marks[:, order])
        page = order[place]
        counts += np.bincount((target + start) * ranks + owner[page], minlength=ranks * ranks)
        pages.append(page.astype(np.int32))
    return np.append(0, np.cumsum(counts)), np.concatenate(pages)


def needed(
    work: Work, worker: np.ndarray, ranks: int, *, without: np.ndarray | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """(start, marks (ranks, pages)): the pages that rows of ranks from `start` on read, a bounded number at a time.

    without: the rank that holds each page, where pages that a rank holds itself are not marked.
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
        marks = np.cumsum(edges.astype(np.int32).reshape(count, pages + 1), axis=1, dtype=np.int32)[:, :-1] > 0
        if without is not None:
            marks &= without != np.arange(start, start + count)[:, None]
        yield start, marks


# By the name of the candidate: the pairs, as a multiple of the mean, up to which a rank keeps and takes blocks. A rank
# that gives up much sends its pages to many others, so that moving less can take less time.
LIMITS = {"excess": 1.01, "excess-1.1": 1.1, "excess-1.3": 1.3, "excess-1.6": 1.6}


def rebalance(owner: np.ndarray, pairs: np.ndarray, ranks: int, limit: float = LIMITS["excess"]) -> np.ndarray:
    """The worker of each block of rows.

    owner: the rank that holds each block. pairs: of each block. limit: the pairs of a rank, as a multiple of the mean.

    Every rank above the limit gives up its blocks with the most pairs: those move the most work for the bytes of a
    query and an output, and they are often neighbors that read the same pages. They go, in order of position, to the
    ranks with the most room, one after another, so that neighbors arrive together and few ranks receive the same page.
    Nothing moves if the rank with the most pairs would not have fewer.

    >>> rebalance(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 5]), ranks=2).tolist()
    [0, 0, 1, 1]
    >>> rebalance(np.array([0, 0, 1, 1]), np.array([1, 1, 3, 5]), ranks=2).tolist()
    [0, 0, 1, 0]
    """
    worker = owner.copy()
    load = np.bincount(owner, pairs, ranks)
    most = load.max()
    limit *= load.sum() / ranks
    given = _given(owner, pairs, load, limit)
    if not len(given):
        return worker
    load -= np.bincount(owner[given], pairs[given], ranks)
    takers = iter(np.argsort(load, kind="stable").tolist())
    taker, taken, rest = next(takers), 0, []
    for block in given.tolist():
        if taken and load[taker] + pairs[block] > limit:
            taker, taken = next(takers, taker), 0
        if load[taker] + pairs[block] > limit:  # and the ranks after this one have less room
            rest.append(block)
            continue
        worker[block] = taker
        load[taker] += pairs[block]
        taken += 1
    least = [(total, rank) for rank, total in enumerate(load.tolist())]
    heapq.heapify(least)
    for block in sorted(rest, key=lambda block: -pairs[block]):  # blocks that fit nowhere: to the rank with the least
        total, rank = least[0]
        worker[block] = rank
        heapq.heapreplace(least, (total + float(pairs[block]), rank))
    return worker if max(least)[0] < most else owner.copy()  # a few large blocks can make it worse


def _given(owner: np.ndarray, pairs: np.ndarray, load: np.ndarray, limit: float) -> np.ndarray:
    """The blocks that ranks above the limit give up, in order of position."""
    order = np.lexsort((-pairs, owner))  # of each rank, the blocks with the most pairs first
    before = np.cumsum(pairs[order]) - pairs[order]
    counts = np.bincount(owner, minlength=len(load))
    begins = np.cumsum(counts) - counts
    held = owner[order]
    gone = before - before[np.minimum(begins, len(order) - 1)][held]  # pairs that this rank gave up before this block
    return np.sort(order[load[held] - gone > limit])


PEAK = 400e12  # operations per second of a rank: attention in bfloat16 on a data-center GPU
BANDWIDTH = 50e9  # bytes per second of a rank in each direction: a network of 400 Gbit/s
EQUAL = 1.02  # times closer than this are equal: the model is not more exact


@dataclass(frozen=True)
class Candidate:
    """One way to place a sequence, in numbers.

    seconds = max over ranks of max(2 (D + E) · pairs / peak, max(bytes in, bytes out) / bandwidth).

    Args:
        name: contiguous, zigzag, striped, balanced, excess (or excess-1.1, -1.3, -1.6), or given.
        seconds: the modelled time of a forward pass.
        balance: the pairs of the rank with the most, divided by the mean.
        mean_bytes: bytes that a rank receives, on average.
        most_bytes: bytes that the rank with the most traffic receives or sends, whichever is more.
        moved: blocks of 128 rows that another rank computes than the one that holds them.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> place = rp.place(8192, ranks=4, mask=rg.causal(), among=("contiguous", "zigzag", "striped", "excess"))
        >>> [(each.name, round(each.balance, 2)) for each in place.candidates]
        [('contiguous', 1.74), ('zigzag', 1.0), ('striped', 1.05), ('excess', 1.04)]
    """

    name: str
    seconds: float
    balance: float
    mean_bytes: float
    most_bytes: int
    moved: int


def candidate(
    name: str, work: Work, owner: np.ndarray, worker: np.ndarray, ranks: int, rates: tuple[float, float]
) -> Candidate:
    """The numbers of a candidate. rates: peak and bandwidth."""
    pairs = sums(worker, work.pairs, ranks)
    found = flow(work, owner, worker, ranks)
    total = int(pairs.sum())
    return Candidate(
        name=name,
        seconds=float(seconds_of(work.sizes, pairs, found, rates).max()),
        balance=float(pairs.max()) * ranks / total if total else 1.0,
        mean_bytes=int(found.bytes_in.sum()) / ranks,
        most_bytes=int(max(found.bytes_in.max(), found.bytes_out.max())),
        moved=int(np.count_nonzero(owner != worker)),
    )


def seconds_of(sizes: Sizes, pairs: np.ndarray, found: Flow, rates: tuple[float, float]) -> np.ndarray:
    """The modelled time of each rank: of its products or of its traffic, whichever takes longer."""
    peak, bandwidth = rates
    products = 2 * sizes.row_numbers * pairs / peak
    return np.maximum(products, np.maximum(found.bytes_in, found.bytes_out) / bandwidth)


def best(candidates: tuple[Candidate, ...]) -> Candidate:
    """The candidate with the least modelled time; of those within 2 %, the one that sends the fewest bytes."""
    least = min(each.seconds for each in candidates)
    return min((each for each in candidates if each.seconds <= EQUAL * least), key=lambda each: each.mean_bytes)
