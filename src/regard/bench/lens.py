"""Lens: what it costs to look: the figures of a long head beside its forward pass, tiles and overviews of it, and a
page.
"""

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

from ..api.attention import attention, attention_weights
from ..language.masks import causal
from ..lens import Axis, Call, Run
from ..lens.runs.codes import FINE_ERROR, decode
from ..lens.runs.figures import measured
from ..lens.runs.tiles import overview, tile
from ..lens.viewer import page
from ..lens.viewer.queries import row
from . import browser
from .interleave import Pace, seconds, take_turns
from .system import Figure

__all__ = ["measure"]

TOKENS, DEPTH = 100_000, 64
LAYERS, HEADS, SHORT = 12, 12, 512  # of the run that becomes a page
SENTENCE = "The animal didn't cross the street because it was too tired to walk any further."  # 20 tokens
TOLERANCE = 1e-4  # of a weight; float32 sums and scores of a few units


def measure(pace: Pace, progress: Callable[[str], None], shrink: int = 1) -> list[Figure]:
    """Every figure, checked against float64 weights first; shrink divides the sizes, to see whether everything
    works.
    """
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
    spans = take_turns(
        {
            "forward": lambda: attention(q, k, v, **rules),
            "figures": lambda: measured(q, k, np.arange(tokens) == 0, **rules),
        },
        pace,
    )
    forward, figures = (seconds(spans[name]) for name in ("forward", "figures"))
    listed = [
        Figure("forward", forward, "s", whole),
        Figure("everything a run records", figures, "s", "lse, figures, received, overview"),
        Figure("the same beside the forward pass", figures / forward, "×"),
        Figure("memory of that", extra, "bytes", "results included"),
    ]
    asked: dict[str, Callable[[], Any]] = {}
    for level in range(max(1, (tokens - 1).bit_length() - 7)):  # up to the one whose only tile is the whole matrix
        place = (tokens >> level) // 512
        asked[f"tile at level {level}"] = partial(tile, call, 0, level, place, place)
    asked |= {
        "row": partial(row, call, 0, tokens - 1),
        "overview, exact": partial(overview, call),
        "overview, sampled": partial(overview, call, sample=16),
    }
    for name, question in asked.items():
        progress(f"lens: {name}")
        exact = getattr(question(), "exact", "exact")
        listed.append(Figure(name, seconds(take_turns({name: question}, pace)[name]), "s", exact))
    return listed + a_page(pace, progress, shrink)


def check(call: Call) -> None:
    """What is measured is right: some rows against weights in float64 that know nothing of lse."""
    assert call.q is not None and call.k is not None
    last = call.shape[1] - 1
    right = attention_weights(
        call.q.astype(float), call.k.astype(float), mask=call.mask, scale=call.scale, rows=[last]
    )[0, 0]
    wrong = {
        "the largest weight": abs(call.rows["maximum"][0, last] / right.max() - 1),
        "a row": np.abs(decode(*row(call, 0, last))[right > 1e-6] / right[right > 1e-6] - 1).max() - FINE_ERROR,
        "a tile": np.abs(tile(call, 0, 0, last // 256, 0).share[last % 256] / right[:256] - 1).max(),
        "a line of the overview": abs(overview(call, sample=16).share[0, -1].sum() - 1),
    }
    for name, error in wrong.items():
        if not error < TOLERANCE:
            raise ArithmeticError(f"lens: {name} differs from float64 by {error:.1e}")


def a_page(pace: Pace, progress: Callable[[str], None], shrink: int) -> list[Figure]:
    """A run of usual size as one file."""
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
    spent = seconds(take_turns({"page": lambda: page(run)}, pace)["page"])
    made = page(run)
    progress("lens: the page in a browser")
    return [
        Figure("page", float(len(made.encode())), "bytes", note),
        Figure("its making", spent, "s", "from a recorded run"),
        *browser.measure(made),
        *a_first_look(progress, shrink),
    ]


def a_first_look(progress: Callable[[str], None], shrink: int) -> list[Figure]:
    """The command on one sentence, from its start to its end, in processes of their own."""
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
        Figure("its page", bytes_, "bytes"),
    ]
