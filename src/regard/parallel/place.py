"""Place: tries layouts of a sequence on the plan of a mask, and takes the one with the least modelled time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any, SupportsIndex

import numpy as np

from ..common.dtypes import FLOATS, LISTED
from ..common.errors import Reason, did_you_mean, refuse, refuse_all
from ..common.public import ArrayLike
from ..language.callables import Mask
from ..language.checks.numbers import LIMIT as POSITIONS
from ..language.checks.numbers import integers, whole
from .placement import Placement
from .work import BANDWIDTH, LIMITS, PAGE, PEAK, Sizes, Work, best, candidate, rebalance, routes

MOST = 1024  # ranks
LARGEST = 1 << 62  # pairs of query and key, and bytes: sums are 64-bit integers


CHUNK = 8  # pages that `balanced` moves together, where every rank gets at least one such chunk


def contiguous(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Consecutive pages, as many for each rank as for the others, or one more. pairs: of each block of rows.

    >>> contiguous(np.ones(8), 2).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    return np.arange(len(pairs)) * ranks // len(pairs)


def zigzag(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Two parts for each rank, one from the start and its mirror image from the end.

    >>> zigzag(np.ones(8), 2).tolist()
    [0, 0, 1, 1, 1, 1, 0, 0]
    """
    part = contiguous(pairs, 2 * ranks)
    return np.minimum(part, 2 * ranks - 1 - part)


def striped(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Page i at rank i modulo the number of ranks.

    >>> striped(np.ones(5), 2).tolist()
    [0, 1, 0, 1, 0]
    """
    return np.arange(len(pairs)) % ranks


def balanced(pairs: np.ndarray, ranks: int) -> np.ndarray:
    """Chunks of pages from the most work to the least, each to the rank with the least so far that has room.

    pairs: of each block of rows. A rank holds at most ⌈chunks / ranks⌉ chunks.

    >>> balanced(np.array([5, 1, 1, 3]), 2).tolist()
    [0, 0, 1, 1]
    """
    size = max(1, min(CHUNK, len(pairs) // ranks))
    work = np.add.reduceat(pairs, np.arange(0, len(pairs), size))
    most = -(-len(work) // ranks)
    waiting = [(0, rank, 0) for rank in range(ranks)]  # pairs, rank, chunks: already a heap
    owner = np.zeros(len(work), np.int64)
    for chunk in np.argsort(-work, kind="stable").tolist():
        total, rank, chunks = heapq.heappop(waiting)
        owner[chunk] = rank
        if chunks + 1 < most:
            heapq.heappush(waiting, (total + int(work[chunk]), rank, chunks + 1))
    return np.repeat(owner, size)[: len(pairs)]


LAYOUTS: dict[str, Callable[[np.ndarray, int], np.ndarray]] = {
    "contiguous": contiguous,
    "zigzag": zigzag,
    "striped": striped,
    "balanced": balanced,
}
GIVEN = "given"


def place(
    tokens: SupportsIndex,
    *,
    ranks: SupportsIndex,
    mask: Mask | None = None,
    heads: SupportsIndex = 1,
    key_heads: SupportsIndex | None = None,
    depth: SupportsIndex = 128,
    value_depth: SupportsIndex | None = None,
    dtype: str = "bfloat16",
    among: Sequence[str] | None = None,
    layout: ArrayLike | None = None,
    peak: float = PEAK,
    bandwidth: float = BANDWIDTH,
) -> Placement:
    """Chooses which rank holds each page of 128 tokens, and which computes each block of 128 rows.

    time = max over ranks of max(2 (D + E) · pairs / peak, max(bytes in, bytes out) / bandwidth) of a forward pass; the
    candidate with the least is taken, and of those within 2 % of it the one that sends the fewest bytes.

    The candidates are contiguous (consecutive pages), zigzag (two parts, one from each end), striped (page i at rank
    i mod R), balanced (most work first, to the rank with the least) and excess, excess-1.1, excess-1.3 and excess-1.6
    (contiguous, but blocks of rows above 1.01, 1.1, 1.3 or 1.6 times the mean are computed by other ranks: the query
    goes there, output and lse return). Nothing is sent and no process is needed. The plan of the mask says what each
    block of rows visits, so the matrix is never made.

    Args:
        tokens: rows and keys of one sequence; any number, not only multiples of 128 or of the ranks.
        ranks: number of ranks, 1 to 1024; ranks may be left without tokens.
        mask: which keys a row may attend to, as for `attention`; None means every pair.
        heads: query heads.
        key_heads: key/value heads, by default as many as query heads. A page travels with all of them.
        depth: numbers of a query and of a key, for each head.
        value_depth: numbers of a value, by default `depth`.
        dtype: of the arrays: float32, float64, float16 or bfloat16.
        among: the candidates that are tried, by name; by default all of them.
        layout: the rank of each page, (⌈tokens / 128⌉,) integers, where the tokens are already placed. The candidates
            are then "given" (each rank computes its own rows) and those of excess.
        peak: operations per second of a rank.
        bandwidth: bytes per second of a rank, in each direction.

    Returns:
        The placement: frozen, with the owner of each page, the worker of each block of rows, the pages that travel
        between each pair of ranks, and the numbers of all candidates.

    Raises:
        Refused: a size is not a positive integer, heads do not divide, the dtype or a candidate is unknown, the layout
            does not have one rank for each page, or the mask is not a rule.

    Source:
        Li et al. 2021 (contiguous parts in a ring); Brandon et al. 2023 (striped); the zig-zag order of Llama 3, 2024.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> place = rp.place(1 << 20, ranks=64, mask=rg.causal(), heads=32, key_heads=8)
        >>> place.chosen.name, round(place.chosen.balance, 2), f"{place.chosen.mean_bytes / place.ring_bytes:.0%}"
        ('zigzag', 1.0, '75%')
    """
    numbers = {
        "tokens": tokens,
        "ranks": ranks,
        "heads": heads,
        "key_heads": heads if key_heads is None else key_heads,
        "depth": depth,
        "value_depth": depth if value_depth is None else value_depth,
    }
    sizes, count = _sizes(numbers, dtype)
    rates = _rate(peak, "peak", "operations"), _rate(bandwidth, "bandwidth", "bytes")
    fixed = None if layout is None else _layout(layout, sizes.pages, count)
    names = _names(among, (*LAYOUTS, *LIMITS) if fixed is None else (GIVEN, *LIMITS))
    work, text = Work.of(sizes, mask)
    base = contiguous(work.pairs, count) if fixed is None else fixed
    tried = {}
    for name in names:
        owner = LAYOUTS[name](work.pairs, count) if name in LAYOUTS else base
        tried[name] = owner, rebalance(owner, work.pairs, count, LIMITS[name]) if name in LIMITS else owner
    candidates = tuple(candidate(name, work, *tried[name], count, rates) for name in names)
    chosen = best(candidates)
    owner, worker = tried[chosen.name]
    offsets, pages = routes(work, owner, worker, count)
    return Placement(
        sizes=sizes,
        ranks=count,
        mask=text,
        peak=rates[0],
        bandwidth=rates[1],
        candidates=candidates,
        chosen=chosen,
        owner=owner.astype(np.int32),
        worker=worker.astype(np.int32),
        pairs=work.pairs,
        offsets=offsets,
        pages=pages,
    )


def _sizes(numbers: dict[str, Any], dtype: Any) -> tuple[Sizes, int]:
    """The checked sizes, and the number of ranks; every problem is listed."""
    limits = {"tokens": POSITIONS - 1, "ranks": MOST}
    reasons = []
    for name, value in numbers.items():
        numbers[name] = number = whole(value, "place", name)
        most = limits.get(name, 1 << 16)
        if not 1 <= number <= most:
            expected = f"an integer from 1 to {most:,}"
            reasons.append(Reason(f"{name} is out of range", f"{number}", expected, f"pass {name}=…"))
    if not reasons and numbers["heads"] % numbers["key_heads"]:
        given = f"heads={numbers['heads']}, key_heads={numbers['key_heads']}"
        expected = "key_heads that divide heads"
        reasons.append(Reason("the heads do not divide", given, expected, "check both numbers"))
    if dtype not in FLOATS:
        fix = did_you_mean(str(dtype), FLOATS)
        reasons.append(Reason("the dtype is unknown", repr(dtype), LISTED, fix))
    refuse_all("place", reasons)
    count = numbers.pop("ranks")
    sizes = Sizes(**numbers, dtype=dtype)
    pairs, sent = sizes.tokens**2 * sizes.heads, sizes.tokens * count * (sizes.row_bytes + sizes.key_bytes)
    if max(pairs, sent) >= LARGEST:
        given = f"{sizes.tokens:,} tokens, {sizes.heads} heads, {count} ranks"
        expected = "fewer than 2**62 pairs, and bytes that travel"
        raise refuse("place", "the sequence is too large", given, expected, "pass fewer tokens")
    return sizes, count


def _rate(value: Any, name: str, what: str) -> float:
    try:
        rate = float(value)
    except (TypeError, ValueError):
        rate = math.nan
    if not 0 < rate < math.inf:
        expected = f"a positive number of {what} per second"
        raise refuse("place", f"{name} is not a rate", repr(value), expected, "omit it, or pass one")
    return rate


def _names(among: Any, known: tuple[str, ...]) -> tuple[str, ...]:
    """The candidates to try, in the order of the table."""
    if among is None:
        return known
    given = [among] if isinstance(among, str) else list(among)
    unknown = [name for name in given if name not in known]
    if unknown or not given:
        what = "the candidate is unknown" if unknown else "no candidate"
        fix = did_you_mean(str(unknown[0]), known) if unknown else "omit among=, or name one"
        raise refuse("place", what, f"among={among!r}", ", ".join(known), fix)
    return tuple(name for name in known if name in given)


def _layout(layout: Any, pages: int, ranks: int) -> np.ndarray:
    owner = integers(layout, "place", (1,))
    if len(owner) != pages:
        raise refuse(
            "place",
            "the layout does not have one rank for each page",
            f"layout of {len(owner):,}",
            f"{pages:,}, one for each page of {PAGE} tokens",
            "give every page a rank",
        )
    if owner.min() < 0 or owner.max() >= ranks:
        raise refuse(
            "place",
            "the layout names a rank that does not exist",
            f"ranks {owner.min()} to {owner.max()}",
            f"ranks 0 to {ranks - 1}",
            "pass more ranks=, or check the layout",
        )
    return owner
