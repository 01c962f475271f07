"""`heatmap`: attention weights as a matplotlib figure, with the scales and signs of the page; `ramp`: the color map of
both, for light and for dark backgrounds.

The path of the color map runs through OKLab (Ottosson 2020), a color space in which distance approximates perceived
difference. Lightness is monotonic along it, so it also works in grayscale and for color-blind readers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from ..common.arrays import read_array
from ..common.errors import Reason, Refused, refuse
from ..common.optional import requires_extra
from ..common.text.keywords import known_keywords
from ..common.text.units import counted
from ..language.added_masks import how_to_pass
from ..language.masks import dense
from .runs.axis import named
from .runs.call import Call
from .runs.codes import LEAK, MASKED, NAN, OUT, ZERO, encode
from .runs.labels import visible, words
from .runs.run import Run
from .runs.tiles import region

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import ArrayLike

DECADES = {"near": 3, "log": 6}  # the decades of the logarithmic scales
SHORT = 256  # keys: up to here, three decades are enough
NOTHING = "#c6d6ea"  # the color of exactly 0, which is not part of a color map
NAMED = 48  # tokens along a side: up to here, each has a label
SIGNS = {
    NAN: ("not a number", "#d6006e"),
    OUT: ("out of range", "#e08a00"),
    LEAK: ("weight where the mask forbids it", "#ff1f1f"),
}


@requires_extra("heatmap", "look")
@known_keywords
def heatmap(
    what: Run | Call | ArrayLike,
    call: int | str = 0,
    heads: int | Sequence[int] | None = None,
    *,
    rows: slice | None = None,
    keys: slice | None = None,
    scale: str | None = None,
    tokens: Sequence[str] | None = None,
    mask: ArrayLike | None = None,
    cells: int = 256,
    title: str | None = None,
    ax: Axes | None = None,
) -> Figure:
    """Draws attention weights as a matplotlib figure: rows are queries, columns are keys.

    color(p) = ramp(1 + log₁₀ p / 6) on [10⁻⁶, 1] for scale="log", ramp(1 + log₁₀ p / 3) on [10⁻³, 1] for "near",
    ramp(p) for "linear"

    Masked pairs are hatched. Weights that are exactly 0, not a number, out of range, or on masked keys have separate
    colors, which the legend explains.

    Args:
        what: a `Run`, of which one `call` is drawn; a `Call`; or (Q, K) or (H, Q, K) weights.
        call: the number of a call of the run, or the name of its layer.
        heads: a head, several heads, or None for all.
        rows: a slice of the queries; None is all.
        keys: a slice of the keys; None is all.
        scale: "near", "log" or "linear"; None is "near" for up to 256 keys and "log" for more, as on the page.
        tokens: the labels of the keys, and of the queries if there are as many; a run has its own.
        mask: booleans that broadcast to the weights, true where a weight is allowed; only with weights.
        cells: the most cells along a side. A longer side is pooled: each cell is the mean over its rows of the sum
            over its keys, which the axis label states.
        title: the title; None is the layer and the head.
        ax: the axes for a single head; None creates a new figure.

    Returns:
        The figure, to be shown or saved: `figure.savefig("attention.pdf")`.

    Raises:
        Refused: listing every problem: unknown heads, calls or scales, slices outside the matrix, tokens that do not
            fit, several heads on one `ax`, and arguments that have no meaning for `what`.

    Examples:
        >>> import numpy as np, regard as rg
        >>> weights = rg.attention_weights(np.ones((2, 5, 4)), np.ones((2, 5, 4)), mask=rg.causal())
        >>> figure = rg.heatmap(weights, tokens=["a", "b", "c", "d", "e"])
        >>> len(figure.axes)  # two heads and the color bar
        3
    """
    shown, names, keyed = _selected(
        what, call, heads, rows=rows, keys=keys, tokens=tokens, mask=mask, cells=cells, scale=scale, ax=ax
    )
    scale = scale or ("near" if keyed <= SHORT else "log")
    from matplotlib import pyplot  # a slow import, after the arguments are checked

    if ax is not None:
        _draw(ax, shown[0], names[0] if title is None else title, scale)
        figure: Any = ax.figure
        places = [ax]
    else:
        across = min(len(shown), max(1, math.ceil(math.sqrt(len(shown)))))
        down = -(-len(shown) // across)
        figure, grid = pyplot.subplots(
            down, across, figsize=(1.2 + 4.2 * across, 0.8 + 4.2 * down), squeeze=False, layout="constrained"
        )
        pyplot.close(figure)  # otherwise notebooks would show it twice
        places = list(grid.flat)
        alone = len(shown) == 1
        for place, one, name in zip(places, shown, [title] if alone and title is not None else names):
            _draw(place, one, name, scale)
        for place in places[len(shown) :]:
            place.set_axis_off()
        if title is not None and not alone:
            figure.suptitle(_plain(title))
    _legend(figure, places, shown, scale)
    return figure


def _selected(
    what, call, heads, *, rows, keys, tokens, mask, cells, scale, ax
) -> tuple[list[MatrixFigure], list[str], int]:
    """The selected heads, their titles, and the number of keys of the call; or `Refused`, listing every problem."""
    reasons: list[Reason] = []

    def fault(what: str, given: str, expected: str, fix: str) -> None:
        reasons.append(Reason(what, given, expected, fix))

    if scale not in (None, *DECADES, "linear"):
        fault("no such scale", f"scale={scale!r}", '"near", "log" or "linear"', "choose one")
    if isinstance(cells, bool) or not isinstance(cells, int) or cells < 1:
        fault(
            "cells is not a number of cells",
            f"cells={cells!r}",
            "an integer, at least 1",
            "pass a positive integer",
        )
    if mask is not None and isinstance(what, Run | Call):
        fault("mask= with a run or call, which has its own mask", "mask=…", "mask= only with weights", "leave it out")
    if isinstance(call, bool) or not isinstance(call, int | str | np.integer):
        fault(
            "call= is not the number or the name of a call",
            f"call of type {type(call).__name__}",
            "weights alone, or a Run and one of its calls",
            "for arrays q and k, pass rg.attention_weights(q, k)",
        )
        call = 0
    queries: Sequence[str] | None = None
    if isinstance(what, Run):
        shown = what.call(call)
        axes = what.axes[shown.queries], what.axes[shown.keys]
        queries, own = ([named(axis, i, "␣") for i in range(len(axis))] for axis in axes)
        tokens = own if tokens is None else tokens
    elif call != 0:
        fault("call= without a run", f"call={call!r}", "call= only with a Run", "leave it out")
    if isinstance(what, Call):
        shown = what
    elif not isinstance(what, Run):
        shown = _call_of(what, mask)
    H, Q, K = shown.shape
    listed = list(range(H)) if heads is None else [heads] if isinstance(heads, int) else list(heads)
    if any(not isinstance(head, int | np.integer) or not -H <= head < H for head in listed) or not listed:
        fault("no such head", f"heads={heads!r}", f"0 to {H - 1}", "count from 0")
    elif ax is not None and len(listed) != 1:
        fault(
            "several heads on one ax",
            f"{counted(len(listed), 'head')}, one ax",
            "one head",
            "choose it with heads=, or leave ax out",
        )
    if tokens is not None and len(tokens) != K:
        fault(
            "the number of tokens is not the number of keys",
            f"{counted(len(tokens), 'token')}, {counted(K, 'key')}",
            "one token per key",
            f"pass {counted(K, 'token')}",
        )
    parts = {"rows": (rows, Q), "keys": (keys, K)}
    for name, (part, count) in parts.items():
        if part is not None and (not isinstance(part, slice) or part.step not in (None, 1) or not range(count)[part]):
            fault(
                f"{name} outside the matrix",
                f"{name}={part!r}",
                f"a slice of {counted(count, 'position')}, with step 1",
                "pass for example slice(0, 16)",
            )
    if reasons:
        raise Refused("heatmap", reasons)
    if queries is None and tokens is not None and Q == K:
        queries = tokens
    top, left = (range(count)[slice(None) if part is None else part] for part, count in parts.values())
    found = [matrix_figure(shown, head % H, top, left, cells, queries=queries, tokens=tokens) for head in listed]
    label = shown.name or "attention"
    one = H == 1 and not isinstance(what, Run | Call)
    return found, [label if one else f"{label}, head {head % H}" for head in listed], K


@dataclass(frozen=True, eq=False)
class MatrixFigure:
    """A part of one head's matrix, pooled to cells.

    share, codes (R, C): the mean over a cell's rows of the sum over its keys, and its code, or that of an invalid
    weight in the cell · rows, keys: of the part · queries, tokens: those of the rows and of the keys, if a cell is one
    row or key · exact: how the cells were computed.
    """

    share: np.ndarray
    codes: np.ndarray
    rows: range
    keys: range
    queries: Sequence[str] | None
    tokens: Sequence[str] | None
    exact: str


def matrix_figure(
    call: Call,
    head: int,
    rows: range,
    keys: range,
    cells: int,
    *,
    queries: Sequence[str] | None = None,
    tokens: Sequence[str] | None = None,
) -> MatrixFigure:
    """The part of a head, pooled to at most cells × cells. queries, tokens: of all rows and keys of the call."""
    height, width = min(cells, len(rows)), min(cells, len(keys))
    found = region(call, head, rows, keys, height, width)
    single = height == len(rows), width == len(keys)
    size = f"cells of {len(rows) / height:.4g} × {len(keys) / width:.4g} pairs: mean of rows, sum of keys"
    exact = found.exact if all(single) else size if found.exact == "exact" else f"{size}, {found.exact}"
    return MatrixFigure(
        found.share,
        encode(found.share, found.allowed, found.wrong)[0],
        rows,
        keys,
        None if queries is None or not single[0] else queries[rows.start : rows.stop],
        None if tokens is None or not single[1] else tokens[keys.start : keys.stop],
        exact,
    )


def _call_of(weights, mask) -> Call:
    """A call with given weights."""
    held = np.asarray(weights.detach().cpu() if hasattr(weights, "detach") else weights)
    held = held[None] if held.ndim == 2 else held
    if held.ndim != 3 or held.dtype.kind != "f" or 0 in held.shape:
        raise refuse(
            "heatmap",
            "not weights",
            f"{held.dtype} {held.shape}",
            "floats (Q, K) or (H, Q, K)",
            "pass one batch entry: weights[0]",
        )
    allowed = None if mask is None else read_array(mask, "heatmap")
    if allowed is not None and allowed.dtype != np.bool_:
        raise refuse(
            "heatmap",
            "the mask is not an array of conditions",
            f"{allowed.dtype} {allowed.shape}",
            "booleans, true where a row may attend",
            how_to_pass(allowed, "mask", condition="mask="),
        )
    if allowed is not None and not all(a in (1, b) for a, b in zip(allowed.shape[::-1], held.shape[::-1])):
        raise refuse(
            "heatmap",
            "a mask that does not fit",
            f"{allowed.shape}",
            f"booleans that broadcast to {held.shape}",
            "pass the mask of these heads, rows and keys",
        )
    rule = None if allowed is None else dense(allowed[(None,) * (4 - allowed.ndim)], query_start=0)
    return Call("", None, "queries", "keys", np.zeros(held.shape[:2]), given=held, mask=rule)


def _plain(text: str) -> str:
    """Visible text with $ escaped, since matplotlib reads formulas between dollar signs."""
    return (words(text) if text.strip() == text else visible(text, "␣")).replace("$", r"\$")


def _draw(ax: Any, shown: MatrixFigure, name: str, scale: str) -> None:
    codes = shown.codes
    with np.errstate(divide="ignore", invalid="ignore"):
        place = np.nan_to_num(1 + np.log10(shown.share) / DECADES[scale] if scale in DECADES else shown.share)
    colors = ramp("light")[np.rint(255 * np.clip(place, 0, 1)).astype(int)] / 255
    for code, color in {ZERO: NOTHING, **{code: color for code, (_, color) in SIGNS.items()}}.items():
        colors[codes == code] = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    ax.set_facecolor("#f4f2ea")
    ax.patch.set(hatch="////", edgecolor="#cfccc0", linewidth=0)
    aspect = "auto" if max(codes.shape) > 4 * min(codes.shape) else "equal"  # too long for square cells
    ax.imshow(np.dstack([colors, codes != MASKED]), interpolation="nearest", aspect=aspect)
    ax.set(title=_plain(name), xlabel="keys" if shown.exact == "exact" else f"keys\n{shown.exact}", ylabel="queries")
    sides = ((ax.set_yticks, shown.rows, shown.queries, 0), (ax.set_xticks, shown.keys, shown.tokens, 90))
    for (mark, part, names, rotation), count in zip(sides, codes.shape, strict=True):
        if names is not None and count <= NAMED:
            mark(range(count), [_plain(each) for each in names], fontsize=8, rotation=rotation)
        else:
            ticks = np.unique(np.linspace(0, count - 1, min(count, 6)).round().astype(int))
            mark(ticks, [f"{part.start + round(tick * len(part) / count):,}" for tick in ticks])


def _legend(figure, places, shown: Sequence[MatrixFigure], scale: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap, LogNorm, Normalize
    from matplotlib.patches import Patch

    norm = LogNorm(10.0 ** -DECADES[scale], 1) if scale in DECADES else Normalize(0, 1)
    bar = figure.colorbar(
        ScalarMappable(norm, ListedColormap(ramp("light") / 255)), ax=places, shrink=0.8, label="weight"
    )
    bar.minorticks_off()
    codes = np.unique(np.concatenate([each.codes.ravel() for each in shown]))
    signs = [Patch(facecolor="#f4f2ea", edgecolor="#cfccc0", hatch="////", label="masked")] * bool(MASKED in codes)
    signs += [Patch(facecolor=NOTHING, label="exactly 0")] * bool(ZERO in codes)
    signs += [Patch(facecolor=color, label=name) for code, (name, color) in SIGNS.items() if code in codes]
    if signs:
        roomy = figure.get_layout_engine() is not None  # a figure of the caller may have no room outside its axes
        where: dict[str, Any] = {"loc": "outside lower center"} if roomy else {"loc": "upper right"}
        (figure if roomy else places[0]).legend(
            handles=signs, fontsize=7, frameon=not roomy, ncols=3 if roomy else 1, **where
        )


# Lightness, chroma, hue in degrees: from the background to the strongest color.
PATHS = {
    "light": [(0.975, 0.008, 100), (0.86, 0.085, 105), (0.70, 0.125, 165), (0.50, 0.105, 225), (0.22, 0.105, 290)],
    "diverging-light": [(0.38, 0.13, 250), (0.68, 0.10, 240), (0.965, 0.008, 100), (0.68, 0.13, 45), (0.38, 0.13, 30)],
    "diverging-dark": [(0.80, 0.11, 230), (0.50, 0.10, 245), (0.225, 0.018, 275), (0.52, 0.13, 40), (0.82, 0.13, 65)],
    "dark": [(0.225, 0.018, 275), (0.38, 0.115, 285), (0.56, 0.155, 345), (0.76, 0.145, 50), (0.965, 0.085, 100)],
}

LMS = np.array([[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]])
RGB = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)


@cache
def ramp(theme: str) -> np.ndarray:
    """(256, 3) uint8 sRGB, from weight 0 to 1. theme: "light" or "dark"; "diverging-light" and "diverging-dark" have
    their neutral color in the middle, for signed differences.

    >>> ramp("light")[[0, -1]].tolist()
    [[248, 247, 241], [29, 9, 70]]
    """
    stops = np.array(PATHS[theme], float)
    lightness, chroma, hue = stops[:, 0], stops[:, 1], np.unwrap(np.radians(stops[:, 2]))
    at, fine = np.linspace(0, 1, len(stops)), np.linspace(0, 1, 4096)
    C, h = np.interp(fine, at, chroma), np.interp(fine, at, hue)
    lab = np.stack([np.interp(fine, at, lightness), C * np.cos(h), C * np.sin(h)], -1)
    length = np.concatenate([[0], np.cumsum(np.linalg.norm(np.diff(lab, axis=0), axis=1))])
    ends = length[[0, len(length) // 2, -1] if theme.startswith("diverging") else [0, -1]]
    even = np.interp(np.interp(np.linspace(0, 1, 256), np.linspace(0, 1, len(ends)), ends), length, np.arange(len(lab)))
    lab = np.stack([np.interp(even, np.arange(len(lab)), column) for column in lab.T], -1)
    linear = np.clip((lab @ LMS.T) ** 3 @ RGB.T, 0, 1)
    srgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return np.rint(srgb * 255).astype(np.uint8)
