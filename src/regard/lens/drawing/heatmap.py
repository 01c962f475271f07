"""`heatmap`: weights as a picture for papers, drawn by matplotlib: the colours, scale and signs of the page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ...common.errors import Reason, Refused, refuse
from ...language.masks import dense
from ..runs.call import Call
from ..runs.codes import LEAK, MASKED, NAN, OUT, ZERO
from ..runs.labels import visible
from ..runs.run import Run
from .picture import Picture, picture
from .ramp import ramp

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["heatmap"]

DECADES = {"near": 3, "log": 6}  # of the logarithmic scales
SHORT = 256  # keys up to which three decades are enough
NOTHING = "#c6d6ea"  # exactly 0: on no ramp, and no alarm
NAMED = 48  # tokens along a side that are written out
SIGNS = {
    NAN: ("not a number", "#d6006e"),
    OUT: ("out of range", "#e08a00"),
    LEAK: ("weight where the mask forbids it", "#ff1f1f"),
}


def heatmap(
    what,
    call: int | str = 0,
    heads: int | Sequence[int] | None = None,
    *,
    rows: slice | None = None,
    keys: slice | None = None,
    scale: str | None = None,
    tokens: Sequence[str] | None = None,
    mask=None,
    cells: int = 256,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """A figure of the weights: rows are queries, columns are keys, colours on a fixed domain.

    colour(p) = ramp(1 + log₁₀ p / 6) on [10⁻⁶, 1] for scale="log", ramp(1 + log₁₀ p / 3) on [10⁻³, 1] for "near",
    ramp(p) for "linear"

    what: a `Run`, of which `call` is shown (a number, or the name of a layer); a `Call`; or weights (Q, K) or (H, Q,
    K), with an optional mask of booleans that they should keep to. heads: one, several, or None for all. rows, keys:
    slices, all by default.
    tokens: names of the keys (and of the queries, where there are as many); taken from a run by themselves.
    scale: None is "near" up to 256 keys and "log" beyond, as on the page.
    cells: a longer side is pooled to so many cells: the mean over their rows of the sum over their keys; the title says
    so.
    ax: where to draw a single head; otherwise a new figure. It is returned, to be shown or saved:
    `.savefig("attention.pdf")`.

    Masked pairs are hatched; exactly 0, not a number, out of range, and weight where the mask forbids it have colours
    of their own.
    Refused, all reasons at once: heads, calls or slices that are not there, tokens that do not fit, several heads on
    one `ax`, and arguments that mean nothing for what was given.

    >>> import numpy as np, regard as rg
    >>> weights = rg.attention_weights(np.ones((2, 5, 4)), np.ones((2, 5, 4)), mask=rg.causal())
    >>> figure = rg.heatmap(weights, tokens=["a", "b", "c", "d", "e"])
    >>> len(figure.axes)  # two heads and the legend
    3
    """
    pictures, names, keyed = _pictures(
        what, call, heads, rows=rows, keys=keys, tokens=tokens, mask=mask, cells=cells, scale=scale, ax=ax
    )
    scale = scale or ("near" if keyed <= SHORT else "log")
    from matplotlib import pyplot  # what is heavy loads after the arguments are known to be good

    if ax is not None:
        _draw(ax, pictures[0], names[0] if title is None else title, scale)
        figure: Any = ax.figure
        places = [ax]
    else:
        across = min(len(pictures), max(1, math.ceil(math.sqrt(len(pictures)))))
        down = -(-len(pictures) // across)
        figure, grid = pyplot.subplots(
            down, across, figsize=(1.2 + 4.2 * across, 0.8 + 4.2 * down), squeeze=False, layout="constrained"
        )
        pyplot.close(figure)  # notebooks show what a cell returns, and would show it twice
        places = list(grid.flat)
        alone = len(pictures) == 1
        for place, shown, name in zip(places, pictures, [title] if alone and title is not None else names):
            _draw(place, shown, name, scale)
        for place in places[len(pictures) :]:
            place.set_axis_off()
        if title is not None and not alone:
            figure.suptitle(_plain(title))
    _legend(figure, places, pictures, scale)
    return figure


def _pictures(what, call, heads, *, rows, keys, tokens, mask, cells, scale, ax) -> tuple[list[Picture], list[str], int]:
    """The pictures that are wanted, their titles, how many keys there are in all; or `Refused` with all reasons."""
    reasons = []
    if scale not in (None, *DECADES, "linear"):
        reasons.append(
            Reason("no such scale", given=f"scale={scale!r}", expected='"near", "log" or "linear"', fix="choose one")
        )
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 1:
        reasons.append(
            Reason(
                "cells are counted",
                given=f"cells={cells!r}",
                expected="a whole number, at least 1",
                fix="give a number",
            )
        )
    if mask is not None and isinstance(what, Run | Call):
        reasons.append(
            Reason(
                "a mask for what has one",
                given="mask=…",
                expected="weights alone, when a mask is given",
                fix="leave it out",
            )
        )
    queries: Sequence[str] | None = None
    if isinstance(what, Run):
        shown = what.call(call)
        queries, named = (what.axes[axis].tokens for axis in (shown.queries, shown.keys))
        tokens = named if tokens is None else tokens
    elif call != 0:
        reasons.append(
            Reason(
                "a call of what has none",
                given=f"call={call!r}",
                expected="a Run, when a call is chosen",
                fix="leave it out",
            )
        )
    if isinstance(what, Call):
        shown = what
    elif not isinstance(what, Run):
        shown = _given(what, mask)
    H, Q, K = shown.shape
    listed = list(range(H)) if heads is None else [heads] if isinstance(heads, int) else list(heads)
    if any(not isinstance(head, int | np.integer) or not -H <= head < H for head in listed) or not listed:
        reasons.append(Reason("no such head", given=f"heads={heads!r}", expected=f"0 to {H - 1}", fix="count from 0"))
    elif ax is not None and len(listed) != 1:
        reasons.append(
            Reason(
                "several heads in one place",
                given=f"{len(listed)} heads, one ax",
                expected="one head",
                fix="choose it with heads=, or leave ax out",
            )
        )
    if tokens is not None and len(tokens) != K:
        reasons.append(
            Reason(
                "tokens that do not fit",
                given=f"{len(tokens)} tokens, {K} keys",
                expected="one for each key",
                fix="give as many",
            )
        )
    parts = {"rows": (rows, Q), "keys": (keys, K)}
    for name, (part, count) in parts.items():
        if part is not None and (not isinstance(part, slice) or part.step not in (None, 1) or not range(count)[part]):
            reasons.append(
                Reason(
                    f"{name} outside the matrix",
                    given=f"{name}={part!r}",
                    expected=f"a slice of {count}, without steps",
                    fix="such as slice(0, 16)",
                )
            )
    if reasons:
        raise Refused("heatmap", reasons)
    if queries is None and tokens is not None and Q == K:
        queries = tokens
    top, left = (range(count)[slice(None) if part is None else part] for part, count in parts.values())
    found = [picture(shown, head % H, top, left, cells, queries=queries, words=tokens) for head in listed]
    label = shown.name or "attention"
    return (
        found,
        [f"{label}, head {head % H}" if H > 1 or isinstance(what, Run | Call) else label for head in listed],
        K,
    )


def _given(weights, mask) -> Call:
    """Weights that were handed over, as a call."""
    held = np.asarray(weights.detach().cpu() if hasattr(weights, "detach") else weights)
    held = held[None] if held.ndim == 2 else held
    if held.ndim != 3 or held.dtype.kind != "f" or 0 in held.shape:
        raise refuse(
            "heatmap",
            "not weights",
            given=f"{held.dtype} {held.shape}",
            expected="floats (Q, K) or (H, Q, K)",
            fix="give one batch entry: weights[0]",
        )
    allowed = None if mask is None else np.asarray(mask, bool)
    if allowed is not None and not all(a in (1, b) for a, b in zip(allowed.shape[::-1], held.shape[::-1])):
        raise refuse(
            "heatmap",
            "a mask that does not fit",
            given=f"{allowed.shape}",
            expected=f"booleans that broadcast to {held.shape}",
            fix="cut it",
        )
    rule = None if allowed is None else dense(allowed[(None,) * (4 - allowed.ndim)], query_start=0)
    return Call("", None, "queries", "keys", np.zeros(held.shape[:2]), given=held, mask=rule)


def _plain(words: str) -> str:
    """Words as they are: matplotlib would read formulas between dollars."""
    return (
        visible(words, "␣").replace("$", r"\$")
        if words.strip() != words
        else " ".join(map(visible, words.split())).replace("$", r"\$")
    )


def _draw(ax: Any, shown: Picture, name: str, scale: str) -> None:
    codes = shown.codes
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.nan_to_num(1 + np.log10(shown.share) / DECADES[scale] if scale in DECADES else shown.share)
    colours = ramp("light")[np.rint(255 * np.clip(place, 0, 1)).astype(int)] / 255
    for code, colour in {ZERO: NOTHING, **{code: colour for code, (_, colour) in SIGNS.items()}}.items():
        colours[codes == code] = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    ax.set_facecolor("#f4f2ea")
    ax.patch.set(hatch="////", edgecolor="#cfccc0", linewidth=0)
    ax.imshow(
        np.dstack([colours, codes != MASKED]), interpolation="nearest", aspect="auto" if shown.stretched else "equal"
    )
    ax.set(title=_plain(name), xlabel="keys" if shown.exact == "exact" else f"keys\n{shown.exact}", ylabel="queries")
    for side, words, count in (("x", shown.keys, codes.shape[1]), ("y", shown.queries, codes.shape[0])):
        if words is not None and count <= NAMED:
            marks: dict[str, Any] = {"rotation": 90} if side == "x" else {}
            getattr(ax, f"set_{side}ticks")(range(count), [_plain(word) for word in words], fontsize=8, **marks)
        else:
            start, step = (shown.left, shown.columns) if side == "x" else (shown.top, shown.rows)
            ticks = np.unique(np.linspace(0, count - 1, min(count, 6)).round().astype(int))
            getattr(ax, f"set_{side}ticks")(ticks, [f"{start + round(tick * step):,}" for tick in ticks])


def _legend(figure, places, pictures: Sequence[Picture], scale: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm, Normalize
    from matplotlib.patches import Patch

    norm = LogNorm(10.0 ** -DECADES[scale], 1) if scale in DECADES else Normalize(0, 1)
    bar = figure.colorbar(
        ScalarMappable(norm, ListedColormap(ramp("light") / 255)), ax=places, shrink=0.8, label="weight"
    )
    bar.minorticks_off()
    codes = np.unique(np.concatenate([each.codes.ravel() for each in pictures]))
    signs = [Patch(facecolor="#f4f2ea", edgecolor="#cfccc0", hatch="////", label="masked")] * bool(MASKED in codes)
    signs += [Patch(facecolor=NOTHING, label="exactly 0")] * bool(ZERO in codes)
    signs += [Patch(facecolor=colour, label=name) for code, (name, colour) in SIGNS.items() if code in codes]
    if signs:
        roomy = figure.get_layout_engine() is not None  # a figure of somebody else's may have no room outside its axes
        where: dict[str, Any] = {"loc": "outside lower center"} if roomy else {"loc": "upper right"}
        (figure if roomy else places[0]).legend(
            handles=signs, fontsize=7, frameon=not roomy, ncols=3 if roomy else 1, **where
        )
