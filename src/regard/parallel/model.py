"""Model: how long a placement takes at least, from the pairs and bytes of each rank."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .traffic import Flow, flow
from .work import Sizes, Work, sums

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
