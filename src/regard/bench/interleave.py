"""Turns: engines run one after the other in short bursts, with pauses, so that none is favoured by the weather of the
machine.

A thread pool that has just worked keeps spinning for a while, and freeing gigabytes takes a while too; either slows
whoever comes next. So there is a pause before each burst, and it lasts until the process is quiet.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Burst", "Pace", "seconds", "take_turns"]


@dataclass(frozen=True)
class Pace:
    """How many rounds, how long each engine works per round, and how long the pause before it is (seconds)."""

    rounds: int
    burst: float
    pause: float


FULL = Pace(rounds=7, burst=0.12, pause=0.15)
QUICK = Pace(rounds=3, burst=0.04, pause=0.05)


@dataclass(frozen=True)
class Burst:
    """The calls of one burst: how many, the median and the fastest (seconds)."""

    calls: int
    median: float
    best: float


def take_turns(runs: Mapping[str, Callable[[], object]], pace: Pace) -> dict[str, list[Burst]]:
    """Every engine's bursts. Each round begins with another engine, so nobody always follows the same neighbour."""
    names = list(runs)
    bursts: dict[str, list[Burst]] = {name: [] for name in names}
    for turn in range(pace.rounds):
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            settle(pace.pause)
            bursts[name].append(burst(runs[name], pace.burst))
    return bursts


def settle(pause: float, patience: float = 3.0) -> None:
    """Waits for the pause, and then until this process has used next to no processor for a moment (a spinner may never
    rest).
    """
    time.sleep(pause)
    end = time.perf_counter() + patience
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(0.02)
        if time.process_time() - used < 0.001:
            return


def burst(run: Callable[[], object], length: float) -> Burst:
    """One burst: a call that warms the caches, then calls until the time is up. A call longer than a burst needs no
    warming.
    """
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
    """The reported time of one call: the median over the bursts of each burst's median."""
    return statistics.median(burst.median for burst in bursts)
