"""Plot: who holds and who computes what, and each rank's pairs and bytes, as an image, with matplotlib."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..common.errors import refuse
from ..common.files.output import FIGURE, replacing
from ..common.optional import requires_extra
from .placement import Placement

COLUMNS = 512  # of the upper part: each shows the middle page of its part of the sequence
ENDINGS = ("pdf", "png", "svg")


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


@requires_extra("Explanation.plot", "train")
def plot(place: Placement, numbers: tuple[np.ndarray, ...], path: str | os.PathLike[str]) -> None:
    """Writes the image; its form is that of the name. numbers: of each rank, pairs, bytes received and bytes sent."""
    from matplotlib.figure import Figure  # without pyplot: no window and no global state

    target = Path(path)
    ending = ending_of(target)
    (count, received, away), shown = numbers, f"{place.chosen.name}: {place.sizes.tokens:,} tokens"
    columns = min(COLUMNS, place.sizes.pages)
    middle = (2 * np.arange(columns) + 1) * place.sizes.pages // (2 * columns)
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
    pairs.bar(ranks, count, width=0.9, color="#1f5a96")
    pairs.axhline(count.mean(), color="#c8501e", linewidth=1.2)
    pairs.set_ylabel("pairs; line: the mean")
    for side, (name, values) in enumerate((("received", received), ("sent", away))):
        sent.bar(ranks + 0.45 * side - 0.225, values / 1e6, width=0.45, label=name, color=("#1f5a96", "#9bb7d4")[side])
    sent.set_ylabel("MB of a forward pass")
    sent.set_xlabel("rank")
    sent.legend(frameon=False)
    for axes in (pairs, sent):
        axes.spines[["top", "right"]].set_visible(False)
        axes.set_xlim(-0.6, place.ranks - 0.4)
    figure.suptitle(
        f"{shown} over {place.ranks} ranks, balance {place.chosen.balance:.2f}\n{place.mask[:100]}",
        fontsize=10,
    )
    metadata = {"Software" if ending == "png" else "Creator": FIGURE}
    with replacing("plot", "path", target) as draft:
        figure.savefig(draft, format=ending, dpi=130, metadata=metadata)
