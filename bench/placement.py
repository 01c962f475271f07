"""Placement of one million tokens: `python bench/placement.py` prints the table of docs/how-to/several-devices.md, and
how long `place` takes, the mask's plan included.
"""

from __future__ import annotations

import itertools
import statistics
import time

import regard as rg
import regard.parallel as rp
from regard.cli.plan import log_normal
from regard.common.text.units import seconds, unit

TOKENS = 1 << 20
RANKS = (8, 64, 256, 1024)
REPEATS = 5
COLUMNS = ("contiguous", "zigzag", "striped", "balanced", "excess")


def masks() -> dict[str, rg.Expr]:
    """The masks of the table."""
    lengths = log_normal(188, TOKENS, seed=0)
    return {
        "causal": rg.causal(),
        "window 4096": rg.causal() & rg.window(4096),
        "documents": rg.causal() & rg.documents(lengths=lengths),
        "prefix 256k": rg.prefix(TOKENS // 4),
    }


def placed(mask: rg.Expr, ranks: int, tokens: int = TOKENS) -> rp.Placement:
    """The placement of the table's sizes."""
    return rp.place(tokens, ranks=ranks, mask=mask, heads=32, key_heads=8, depth=128, dtype="bfloat16")


def timed(mask: rg.Expr, ranks: int, tokens: int) -> float:
    """Seconds of a placement with a number of tokens that was not placed before, so that its plan is not known."""
    start = time.perf_counter()
    placed(mask, ranks, tokens)
    return time.perf_counter() - start


def cell(each: rp.Candidate) -> str:
    """Balance and bytes of a candidate."""
    return f"{each.balance:.2f} · {each.mean_bytes / 1e6:,.0f}"


def row(name: str, ranks: int, place: rp.Placement) -> str:
    """A line of the table."""
    numbers = {each.name: cell(each) for each in place.candidates}
    chosen = f"**{place.chosen.name}** {cell(place.chosen)}, {place.chosen.mean_bytes / place.ring_bytes:.1%}"
    ring = f"{place.ring_bytes / 1e6:,.0f}"
    return " | ".join([f"| {name}", f"{ranks}", ring, *(numbers[each] for each in COLUMNS), f"{chosen} |"])


if __name__ == "__main__":
    print("| mask | ranks | ring | " + " | ".join(COLUMNS) + " | chosen, of a ring |")
    print("|---|---|---|" + "---|" * (len(COLUMNS) + 1))
    times, fewer = {}, itertools.count(1)
    for name, mask in masks().items():
        for ranks in RANKS:
            tries = [timed(mask, ranks, TOKENS - next(fewer)) for _ in range(REPEATS)]
            times[name, ranks] = statistics.median(tries)
            print(row(name, ranks, placed(mask, ranks)))
    lengths = log_normal(188, TOKENS, seed=0)
    print(f"\nlongest document: {lengths.max():,} tokens; keys and values: {unit(TOKENS * 8 * 256 * 2, 'B')}")
    print("\n| mask | " + " | ".join(f"{ranks} ranks" for ranks in RANKS) + " |\n|---|" + "---|" * len(RANKS))
    for name in masks():
        print(f"| {name} | " + " | ".join(seconds(times[name, ranks]) for ranks in RANKS) + " |")
