"""Interleaved timing: engines run in short alternating bursts with pauses, so machine noise affects all equally; and
ratios of what is timed, regard next to torch's SDPA.

A thread pool keeps spinning for a while after its work, and freeing gigabytes takes time too; either slows down the
next engine. So there is a pause before each burst, which lasts until the process is idle.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["FULL", "QUICK", "Burst", "Mean", "Pace", "Timed", "interleaved", "means", "seconds"]

ALL = "all"  # the tasks of a dtype together


@dataclass(frozen=True)
class Pace:
    """The number of rounds, and the length of each burst and of the pause before it (seconds)."""

    rounds: int
    burst: float
    pause: float


FULL = Pace(rounds=7, burst=0.12, pause=0.15)
QUICK = Pace(rounds=3, burst=0.04, pause=0.05)


@dataclass(frozen=True)
class Burst:
    """The calls of one burst: their number, the median and the fastest (seconds)."""

    calls: int
    median: float
    best: float


def interleaved(runs: Mapping[str, Callable[[], object]], pace: Pace) -> dict[str, list[Burst]]:
    """The bursts of every engine. Each round starts with a different engine, so that the order varies."""
    names = list(runs)
    bursts: dict[str, list[Burst]] = {name: [] for name in names}
    for round_ in range(pace.rounds):
        for place in range(len(names)):
            name = names[(round_ + place) % len(names)]
            settle(pace.pause)
            bursts[name].append(burst(runs[name], pace.burst))
    return bursts


def settle(pause: float, patience: float = 3.0) -> None:
    """Waits for the pause, and then until this process uses almost no CPU time, for at most `patience` seconds."""
    time.sleep(pause)
    end = time.perf_counter() + patience
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(0.02)
        if time.process_time() - used < 0.001:
            return


def burst(run: Callable[[], object], length: float) -> Burst:
    """One burst: a warm-up call, then calls until the time is up. A call longer than a burst needs no warm-up."""
    first = timed(run)
    calls = [first] if first > length else []
    end = time.perf_counter() + length
    while not calls or (first <= length and time.perf_counter() < end):
        calls.append(timed(run))
    return Burst(len(calls), statistics.median(calls), min(calls))


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def seconds(bursts: list[Burst]) -> float:
    """The reported time of one call: the median of the medians of the bursts."""
    return statistics.median(burst.median for burst in bursts)


@dataclass(frozen=True)
class Timed:
    """One measurement: seconds on regard and on SDPA."""

    name: str
    dtype: str
    task: str
    regard: float
    sdpa: float

    @property
    def ratio(self) -> float:
        return self.sdpa / self.regard


class Mean(NamedTuple):
    """The geometric mean of some ratios, and how many of them are below 1."""

    dtype: str
    task: str
    ratio: float
    below: int
    total: int


def means(found: Iterable[Timed]) -> list[Mean]:
    """The mean of every dtype, and of every task in it."""
    groups: dict[tuple[str, str], list[float]] = {}
    for each in found:
        for task in (ALL, each.task):
            groups.setdefault((each.dtype, task), []).append(each.ratio)
    return [
        Mean(*kind, geometric_mean(ratios), sum(ratio < 1 for ratio in ratios), len(ratios))
        for kind, ratios in sorted(groups.items())
    ]


def geometric_mean(ratios: list[float]) -> float:
    """exp of the mean of the logarithms."""
    return math.exp(sum(map(math.log, ratios)) / len(ratios))
