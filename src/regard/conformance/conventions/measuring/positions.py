"""Measurements of positions: how causal masks and windows are aligned, and what the number of a window counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..fields import CHOICES
from .probe import Probe, base_pattern


def measure_causal(probe: Probe) -> None:
    """The alignment of causal masks."""
    Q, K = probe.sizes["Q"], probe.sizes["K"]
    if not probe.has("causal") and not probe.adapter.always:
        return
    seen = probe.attended(causal=True)
    if seen is None or Q == K:
        probe.unknown("causal", "a causal call does not run" if seen is None else "only as many rows as keys run")
        return
    for alignment, start in (("bottom-right", K - Q), ("top-left", 0)):
        if (seen == np.tri(Q, K, start, dtype=bool)).all():
            count = int(seen[0, 0, 0].sum())
            words = f"at {Q} rows over {K} keys, row 0 of a causal call attends to {count} {_keys(count)}"
            probe.found("causal", alignment, words)
            return
    row = ", ".join(map(str, np.flatnonzero(seen[0, 0, 0]))) or "none"
    words = f"at {Q} rows over {K} keys, row 0 of a causal call attends to the keys {row}"
    probe.unknown("causal", f"neither bottom-right nor top-left: {words}")


def _keys(count: int) -> str:
    return "key" if count == 1 else "keys"


def measure_window(probe: Probe) -> None:
    """What the number or the pair of a window counts."""
    if not probe.has("window") and not probe.has("window_before"):
        return
    pair, number = replace(probe.adapter, window="left-right"), replace(probe.adapter, window="both-sides")
    two = not probe.has("window")
    # A pair (2, 1); then the number 2, with and without a causal mask.
    tries = [(pair, (2, 1), False)] if two else [(pair, (2, 1), False), (number, (2, 2), False)]
    if probe.has("causal") or probe.adapter.always:
        tries += [(pair, (2, 1), True)] if two else [(number, (2, 2), True)]
    usual = probe.adapter.window == "self-included" and "window" not in probe.adapter.declared
    if not two and not usual and not probe.adapter.window.startswith("left"):  # a number is declared: that first
        tries.sort(key=lambda each: each[0] is not number)
    for adapter, window, causal in tries:
        seen = probe.attended(adapter=adapter, window=window, causal=causal)
        found = None if seen is None else _counted(probe, seen, adapter is pair, causal or bool(adapter.always), two)
        if found is not None:
            convention, alignment, words = found
            if alignment is not None and not (probe.has("causal") or probe.adapter.always):
                probe.found("causal", alignment, words)
            probe.found("window", convention, words)
            return
    probe.unknown("window", "no known way to count explains the keys that rows attend to")


def _counted(probe: Probe, seen: np.ndarray, pair: bool, causal: bool, two: bool) -> tuple[str, str | None, str] | None:
    """The convention that explains what was seen, the alignment, and words; None if none does."""
    Q, K = probe.sizes["Q"], probe.sizes["K"]
    known = probe.has("causal") or bool(probe.adapter.always)
    alignments = [probe.adapter.causal] if known else list(CHOICES["causal"])
    for alignment in alignments:
        start = 0 if alignment == "top-left" else K - Q
        offsets = np.arange(K) - np.arange(Q)[:, None] - start
        for (before, after), convention in _meanings(pair, causal, two).items():
            expected = (offsets >= -before) & (True if after is None else offsets <= after)
            expected = expected & base_pattern(probe.adapter, probe.sizes)
            if (seen == expected).all():
                given = "the pair (2, 1)" if pair else "the number 2"
                later = "and no limit after" if after is None else f"and {after} after"
                words = f"with {given}, a row attends to {before} {_keys(before)} before its own position {later}"
                return convention, None if Q == K else alignment, words
    return None


def _meanings(pair: bool, causal: bool, two: bool) -> dict[tuple[int, int | None], str]:
    """Windows (keys before, after) and the convention in which the pair (2, 1) or the number 2 says them. two: whether
    the pair is in two parameters, of which the first alone may count the row itself.
    """
    if pair:
        if causal:
            return {(2, 0): "left-right", (1, 0): "left-right-self-included"}
        first: dict[tuple[int, int | None], str] = {(1, 1): "self-included"} if two else {}
        return first | {(2, 1): "left-right", (1, 0): "left-right-self-included"}
    if causal:
        return {(1, 0): "self-included", (2, 0): "self-excluded"}
    return {
        (1, 0): "self-included",
        (1, None): "self-included",
        (2, 0): "self-excluded",
        (2, None): "self-excluded",
        (2, 2): "both-sides",
    }
