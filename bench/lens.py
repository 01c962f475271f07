"""Lens: times the statistics of a long head relative to its forward pass, its tiles and overviews, and a page."""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from regard.api.attention import attention, attention_weights
from regard.language.masks import causal
from regard.lens import Axis, Call, Run
from regard.lens.runs.codes import FINE_ERROR, decode, encode
from regard.lens.runs.figures import measured
from regard.lens.runs.tiles import overview, tile
from regard.lens.viewer import page

from . import browser
from .interleave import Pace, interleaved, seconds
from .system import Figure

__all__ = ["measure"]

TOKENS, DEPTH = 100_000, 64
LAYERS, HEADS, SHORT = 12, 12, 512  # of the run that becomes a page
SENTENCE = "The animal didn't cross the street because it was too tired to walk any further."  # 20 tokens
TOLERANCE = 1e-4  # of a weight; float32 sums and scores of a few units


def measure(pace: Pace, progress: Callable[[str], None], shrink: int = 1) -> list[Figure]:
    """Every figure, after a check against float64 weights; shrink divides the sizes, for a quick test."""
    tokens = TOKENS // shrink
    progress(f"lens: {tokens:,} tokens")
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, tokens, DEPTH), dtype=np.float32)
    rules = {"mask": causal(), "scale": DEPTH**-0.5}
    tracemalloc.start()
    found = measured(q, k, np.arange(tokens) == 0, **rules)
    extra = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    kept = {name: found[name] for name in ("lse", "rows", "received")}
    call = Call("attention", 0, "text", "text", q=q, k=k, **kept, **rules)
    check(call)
    whole = f"{tokens:,} tokens, one causal head of depth {DEPTH}"
    spans = interleaved(
        {
            "forward": lambda: attention(q, k, v, **rules),
            "figures": lambda: measured(q, k, np.arange(tokens) == 0, **rules),
        },
        pace,
    )
    forward, figures = (seconds(spans[name]) for name in ("forward", "figures"))
    listed = [
        Figure("forward", forward, "s", whole),
        Figure("statistics of a run", figures, "s", "lse, figures, received, overview"),
        Figure("relative to the forward pass", figures / forward, "×"),
        Figure("memory of the statistics", extra, "bytes", "results included"),
    ]
    queries: dict[str, Callable[[], Any]] = {}
    for level in range(max(1, (tokens - 1).bit_length() - 7)):  # up to the level with a single tile
        place = (tokens >> level) // 512
        queries[f"tile at level {level}"] = partial(tile, call, 0, level, place, place)
    queries |= {
        "row": partial(row, call, tokens - 1),
        "overview, exact": partial(overview, call),
        "overview, sampled": partial(overview, call, sample=16),
    }
    for name, compute in queries.items():
        progress(f"lens: {name}")
        exact = getattr(compute(), "exact", "exact")
        listed.append(Figure(name, seconds(interleaved({name: compute}, pace)[name]), "s", exact))
    return listed + a_page(pace, progress, shrink)


def row(call: Call, at: int) -> tuple[np.ndarray, np.ndarray]:
    """What a row of head 0 attends to: coarse and fine codes."""
    return encode(call.weights([at], heads=0)[0, 0], call.allowed([at], heads=0)[0, 0])


def check(call: Call) -> None:
    """Checks some rows against float64 weights that are computed without lse; raises ArithmeticError."""
    assert call.q is not None and call.k is not None
    last = call.shape[1] - 1
    right = attention_weights(
        call.q.astype(float), call.k.astype(float), mask=call.mask, scale=call.scale, rows=[last]
    )[0, 0]
    wrong = {
        "the largest weight": abs(call.rows["maximum"][0, last] / right.max() - 1),
        "a row": np.abs(decode(*row(call, last))[right > 1e-6] / right[right > 1e-6] - 1).max() - FINE_ERROR,
        "a tile": np.abs(tile(call, 0, 0, last // 256, 0).share[last % 256] / right[:256] - 1).max(),
        "a line of the overview": abs(overview(call, sample=16).share[0, -1].sum() - 1),
    }
    for name, error in wrong.items():
        if not error < TOLERANCE:
            raise ArithmeticError(f"lens: {name} differs from float64 by {error:.1e}")


def a_page(pace: Pace, progress: Callable[[str], None], shrink: int) -> list[Figure]:
    """Times the page of a run of typical size."""
    layers, tokens = max(1, LAYERS // shrink), max(8, SHORT // shrink)
    progress(f"lens: a page of {layers} layers × {HEADS} heads × {tokens} tokens")
    random, rules = np.random.default_rng(1), {"mask": causal(), "scale": DEPTH**-0.5}
    calls = []
    for layer in range(layers):
        q, k = random.standard_normal((2, HEADS, tokens, DEPTH), dtype=np.float32)
        calls.append(
            Call(
                f"layers.{layer}",
                layer,
                "text",
                "text",
                q=q,
                k=k,
                **rules,
                **measured(q, k, np.arange(tokens) == 0, **rules),
            )
        )
    run = Run("bench", "", {"text": Axis.of(tokens)}, tuple(calls))
    note = f"{layers} layers × {HEADS} heads × {tokens} tokens"
    spent = seconds(interleaved({"page": lambda: page(run)}, pace)["page"])
    made = page(run)
    progress("lens: the page in a browser")
    return [
        Figure("page", float(len(made.encode())), "bytes", note),
        Figure("building the page", spent, "s", "from a recorded run"),
        *browser.measure(made),
        *a_first_look(progress, shrink),
    ]


def a_first_look(progress: Callable[[str], None], shrink: int) -> list[Figure]:
    """Times the command `regard look` on one sentence, in fresh processes."""
    progress("lens: regard look, one sentence")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "page.html"
        spent = []
        for _ in range(max(1, 5 // shrink)):
            begin = time.perf_counter()
            ran = subprocess.run(
                [sys.executable, "-m", "regard", "look", SENTENCE, "--out", str(file)], capture_output=True, check=False
            )
            spent.append(time.perf_counter() - begin)
            if ran.returncode:
                why = ran.stderr.decode(errors="replace").strip().splitlines()
                return [
                    Figure(
                        "regard look, one sentence", math.nan, "s", why[-1] if why else f"exit status {ran.returncode}"
                    )
                ]
        bytes_ = float(file.stat().st_size)
    return [
        Figure(
            "regard look, one sentence",
            statistics.median(spent),
            "s",
            "the default model, from the start of the command",
        ),
        Figure("regard look, page", bytes_, "bytes"),
    ]
