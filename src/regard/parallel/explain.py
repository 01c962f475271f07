"""Explain: what a placement means for each rank: words, data, a figure of characters, and an image."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..common.errors import refuse
from ..common.files.output import FIGURE, replacing
from ..common.optional import requires_extra
from ..common.text.terminal_text import printable
from ..common.text.units import seconds, unit
from .placement import Placement
from .work import Flow, lent_bytes, seconds_of, stripe_of, sums

LISTED = 16  # ranks that are listed one by one; of more, the busiest
BUSIEST = 8
BAR = 40  # characters of the longest bar
SHOWN = 512  # columns of the upper part of the image: each shows the middle page of its part of the sequence
ENDINGS = ("pdf", "png", "svg")
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def ending_of(path: Path) -> str:
    """The form of an image, by the end of its name: png, svg or pdf. Raises Refused for others.

    >>> ending_of(Path("ranks.PNG"))
    'png'
    """
    ending = path.suffix.lower().lstrip(".")
    if ending not in ENDINGS:
        expected = "a name that ends in .png, .svg or .pdf"
        raise refuse("plot", "the form is unknown", f"{path}", expected, "add an ending")
    return ending


@printable
@dataclass(frozen=True, eq=False)
class Explanation:
    """What each rank has, computes, sends and receives in a forward pass; every array has one number for each rank.

    Args:
        place: the placement that is explained.
        tokens: tokens that the rank holds.
        rows: query rows that it computes.
        pairs: visited pairs of query and key of these rows, over all heads.
        balance: the pairs of the rank with the most, divided by the mean.
        pages: pages that it holds while it computes: its own and those that it receives.
        bytes_in: bytes that it receives: pages, queries of rows of others, and results of its own rows.
        bytes_out: bytes that it sends.
        peers: ranks from which it receives pages.
        seconds: the modelled time: of the products or of the traffic, whichever takes longer.
        memory: the most bytes that it has at a time in a forward pass: q, k, v, output and lse; the pages of the stripe
            of key heads that it computes; what it sends and receives of the next stripe; and rows of others.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> found = rp.explain(rp.place(4096, ranks=2, mask=rg.causal(), among=["zigzag"]))
        >>> found.rows.tolist(), found.peers.tolist(), round(found.balance, 2)
        ([2048, 2048], [1, 1], 1.0)
    """

    place: Placement
    tokens: np.ndarray
    rows: np.ndarray
    pairs: np.ndarray
    balance: float
    pages: np.ndarray
    bytes_in: np.ndarray
    bytes_out: np.ndarray
    peers: np.ndarray
    seconds: np.ndarray
    memory: np.ndarray

    def to_json(self) -> dict[str, Any]:
        """All numbers as lists, and the candidates of the placement, for `json.dumps`."""
        place = self.place
        ranks = {name: getattr(self, name).tolist() for name in COLUMNS}
        return {
            "tokens": place.sizes.tokens,
            "ranks": place.ranks,
            "mask": place.mask,
            "chosen": place.chosen.name,
            "balance": self.balance,
            "ring_bytes": place.ring_bytes,
            "candidates": [vars(each) for each in place.candidates],
            "per_rank": ranks,
        }

    def figure(self, width: int = 64) -> str:
        """Two figures of characters: which rank holds, and computes, each part of the sequence; pairs as bars.

        width: parts into which the sequence is divided. Ranks are written 0 to 9, a to z, and again from 0.
        """
        if width < 1:
            raise refuse("explain", "no width", f"{width}", "1 or more", "omit width=")
        place = self.place
        middle = _middles(place, width)
        shown = {"holds": place.owner[middle], "computes": place.worker[middle]}
        lines = [f"{name:<9}{''.join(DIGITS[rank % len(DIGITS)] for rank in ranks)}" for name, ranks in shown.items()]
        most = max(int(self.pairs.max()), 1)
        listed = _listed(self)
        bars = [f"{rank:>7}  {'█' * round(BAR * int(self.pairs[rank]) / most)}" for rank in listed]
        return "\n".join([*lines, "", "   rank  pairs", *bars])

    @requires_extra("Explanation.plot", "train")
    def plot(self, path: str | os.PathLike[str]) -> None:
        """Writes an image (PNG, SVG or PDF): who holds and computes each part, and each rank's pairs and bytes.

        path: the file; an existing one is replaced. Needs matplotlib: `pip install 'regard[train]'`.
        """
        from matplotlib.figure import Figure  # without pyplot: no window and no global state

        target = Path(path)
        ending = ending_of(target)
        place = self.place
        middle = _middles(place, SHOWN)
        figure = Figure(figsize=(9, 5.2), layout="constrained")
        above, pairs, sent = figure.subplots(3, height_ratios=(1, 2, 2))
        above.imshow(
            np.stack([place.owner[middle], place.worker[middle]]),
            aspect="auto",
            interpolation="nearest",
            cmap="viridis",
            extent=(0, place.sizes.tokens, 2, 0),
        )
        above.set_yticks([0.5, 1.5], ["holds", "computes"])
        above.set_xlabel(f"token; the color is the rank, 0 (dark) to {place.ranks - 1} (light)")
        ranks = np.arange(place.ranks)
        pairs.bar(ranks, self.pairs, width=0.9, color="#1f5a96")
        pairs.axhline(self.pairs.mean(), color="#c8501e", linewidth=1.2)
        pairs.set_ylabel("pairs; line: the mean")
        for side, (name, values) in enumerate((("received", self.bytes_in), ("sent", self.bytes_out))):
            sent.bar(
                ranks + 0.45 * side - 0.225, values / 1e6, width=0.45, label=name, color=("#1f5a96", "#9bb7d4")[side]
            )
        sent.set_ylabel("MB of a forward pass")
        sent.set_xlabel("rank")
        sent.legend(frameon=False)
        for axes in (pairs, sent):
            axes.spines[["top", "right"]].set_visible(False)
            axes.set_xlim(-0.6, place.ranks - 0.4)
        figure.suptitle(
            f"{place.chosen.name}: {place.sizes.tokens:,} tokens over {place.ranks} ranks, "
            f"balance {place.chosen.balance:.2f}\n{place.mask[:100]}",
            fontsize=10,
        )
        metadata = {"Software" if ending == "png" else "Creator": FIGURE}
        with replacing("plot", "path", target) as draft:
            figure.savefig(draft, format=ending, dpi=130, metadata=metadata)

    def __str__(self) -> str:
        place = self.place
        columns = (
            ("tokens", self.tokens, _count),
            ("rows", self.rows, _count),
            ("pairs", self.pairs, _count),
            ("pages", self.pages, _count),
            ("received", self.bytes_in, _size),
            ("sent", self.bytes_out, _size),
            ("peers", self.peers, str),
            ("memory", self.memory, _size),
            ("time", self.seconds, seconds),
        )
        shown = [["rank", *(name for name, _, _ in columns)]]
        shown += [[f"{rank}", *(form(numbers[rank].item()) for _, numbers, form in columns)] for rank in _listed(self)]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        table = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in shown]
        if place.ranks > LISTED:
            table.append(f"the {BUSIEST} ranks of {place.ranks} with the most time; all are in the data")
        share = f", {self.bytes_in.mean() / place.ring_bytes:.1%} of a ring" if place.ring_bytes else ""
        mean = f"balance {self.balance:.2f} · received {unit(float(self.bytes_in.mean()), 'B')} on average{share}"
        return "\n".join([str(place), "", *table, "", mean])


def _middles(place: Placement, most: int) -> np.ndarray:
    """The middle pages of parts of equal length, at most so many."""
    count = min(most, place.sizes.pages)
    return (2 * np.arange(count) + 1) * place.sizes.pages // (2 * count)


def _count(number: int) -> str:
    return f"{number:,}"


def _size(number: int) -> str:
    return unit(number, "B")


COLUMNS = ("tokens", "rows", "pairs", "pages", "bytes_in", "bytes_out", "peers", "seconds", "memory")


def explain(place: Placement) -> Explanation:
    """What a placement means for each rank.

    seconds = max(2 (D + E) · pairs / peak, max(bytes in, bytes out) / bandwidth)

    Args:
        place: a placement.

    Returns:
        The explanation: `str` has a line for each rank, its attributes are arrays (ranks,), `figure()` draws.

    Raises:
        Refused: the argument is not a placement.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> found = rp.explain(rp.place(2048, ranks=4, mask=rg.causal() & rg.window(256)))
        >>> print(found.figure(width=16))
        holds    0000111122223333
        computes 0000111122223333
        <BLANKLINE>
           rank  pairs
              0  ██████████████████████████████
              1  ████████████████████████████████████████
              2  ████████████████████████████████████████
              3  ████████████████████████████████████████
    """
    passed: Any = place
    if not isinstance(passed, Placement):
        given, expected = type(passed).__name__, "a Placement"
        raise refuse("explain", "not a placement", given, expected, "pass what rp.place returned")
    sizes, ranks = place.sizes, place.ranks
    heights, counts = sizes.heights, np.diff(place.offsets).reshape(ranks, ranks)  # [target, source]
    target = np.repeat(np.arange(ranks), counts.sum(axis=1))
    received = sums(target, heights[place.pages], ranks)
    lent = lent_bytes(sizes, place.owner, place.worker, ranks)
    pairs = sums(place.worker, place.pairs, ranks)
    tokens = sums(place.owner, heights, ranks)
    bytes_in = sizes.key_bytes * received + lent.bytes_in
    sent = sums(place.owner[place.pages], heights[place.pages], ranks)
    bytes_out = sizes.key_bytes * sent + lent.bytes_out
    total = int(pairs.sum())
    return Explanation(
        place=place,
        tokens=tokens,
        rows=sums(place.worker, heights, ranks),
        pairs=pairs,
        balance=float(pairs.max()) * ranks / total if total else 1.0,
        pages=np.bincount(place.owner, minlength=ranks) + counts.sum(axis=1),
        bytes_in=bytes_in,
        bytes_out=bytes_out,
        peers=np.count_nonzero(counts, axis=1),
        seconds=seconds_of(sizes, pairs, Flow(bytes_in, bytes_out), (place.peak, place.bandwidth)),
        memory=tokens * (sizes.query_bytes + sizes.key_bytes)
        + _working_bytes(place, tokens, received=received, sent=sent),
    )


def _working_bytes(place: Placement, tokens: np.ndarray, *, received: np.ndarray, sent: np.ndarray) -> np.ndarray:
    """The most bytes of each rank at a time, without those of its own q, k and v; results count as they are written.

    tokens: that a rank holds · received, sent: tokens of pages that it receives and sends, over all stripes
    """
    sizes, ranks = place.sizes, place.ranks
    stripe = stripe_of(sizes.key_heads)
    stripes = -(-sizes.key_heads // stripe)
    of_stripe = sizes.key_bytes * stripe // sizes.key_heads
    rows = sums(place.worker, sizes.heights, ranks)
    results = rows * sizes.result_bytes
    pages, travel = (tokens + received) * of_stripe, (received + sent) * of_stripe
    computing = pages + np.maximum(results, results * (stripes - 1) // stripes + travel)
    if (place.owner == place.worker).all():
        return computing
    queries = rows * sizes.query_bytes
    away = place.owner != place.worker
    lent = sums(place.owner[away], sizes.heights[away], ranks) + sums(place.worker[away], sizes.heights[away], ranks)
    lending = queries + lent * sizes.query_bytes
    returning = results + (tokens + lent) * sizes.result_bytes
    return np.maximum(np.maximum(lending, queries + computing), returning)


def _listed(found: Explanation) -> list[int]:
    """The ranks that are shown: all, or those with the most time."""
    ranks = found.place.ranks
    return [*range(ranks)] if ranks <= LISTED else np.argsort(-found.seconds, kind="stable")[:BUSIEST].tolist()
