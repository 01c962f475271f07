"""`page`: a run as one self-contained HTML file, also in a notebook. Every token is treated as untrusted text.

To add a view, add a row to `VIEWS`, `web/views/NAME.js` and `web/views/NAME.css`. Its script adds an object to
`screens` (its interface is described in state.js), and its own state, URL parameters and keyboard shortcuts.
"""

from __future__ import annotations

import base64
import functools
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, NamedTuple

from ...common.errors import refuse
from ...common.text.characters import clipped
from ...common.text.units import counted
from ...common.web import visuals
from ...common.web.html_page import filled, hashed, stripped
from ..heatmap import ramp
from ..runs.axis import Axis
from ..runs.call import Call
from ..runs.codes import ERROR, packed
from ..runs.figures import with_figures
from ..runs.first_view import choose
from ..runs.labels import visible, words
from ..runs.run import Run
from . import embed, queries
from .live import described

FIGURES = {"attended", "entropy", "maximum", "special", "spread"}  # of every row; the page requires them
THEMES = ("light", "dark", "diverging-light", "diverging-dark")
HEIGHT = 860  # pixels of the frame in a notebook


def page(
    run: Run,
    other: Run | None = None,
    *,
    findings: Sequence[Mapping[str, Any]] = (),
    start: Mapping[str, Any] | None = None,
    served: bool = False,
    live: bool = False,
) -> str:
    """Returns the run as one self-contained, interactive HTML page.

    Args:
        run: the run to show.
        other: a second run to compare with, of any text, tokens and model: what corresponds is found by aligning the
            tokens.
        findings: the findings of an audit, as JSON.
        start: what is shown first: {"call": 0, "head": 0, "query": 0}, or a part of it, and "why" in words. None is a
            head with a fault, or the head that tells most.
        served: whether to leave out the data, which the page then requests from its server (`regard look --serve`).
        live: whether the server also records other texts; the page then has a field for them.

    Returns:
        The HTML text.

    Raises:
        Refused: more than 40 MB of q and k, or of weights, unless `served`; calls without figures, or
            a `start` outside the run.

    Examples:
        >>> import numpy as np, regard as rg
        >>> run = rg.look(np.ones((1, 4, 8)), k=np.ones((1, 4, 8)))
        >>> rg.lens.page(run).startswith("<!doctype html>")
        True
    """
    runs = [run] if other is None else [run, other]
    _check_figures(runs)
    if not served and not all(map(embed.fits, runs)):
        _, Q, K = max((call.shape for call in run.calls), key=lambda shape: shape[1] * shape[2])
        given = (
            f"{run.model}: {counted(sum(call.shape[0] for call in run.calls), 'head')}, the largest of {Q:,} × {K:,}"
        )
        raise refuse(
            "page",
            "too many weights for one page",
            given,
            f"at most {embed.MOST:,} bytes of q and k, or of weights, and {embed.LARGEST:,} weights in one head",
            "serve it (regard look --serve), or record fewer layers",
        )
    begin = choose(run, findings=findings).place if start is None else {"call": 0, "head": 0, "query": 0, **start}
    _check_start(run, begin)
    data = {
        "runs": [
            described(each, () if number else findings, _within(each, begin) if number else begin)
            | {"means": served or embed.means(each)}
            for number, each in enumerate(runs)
        ],
        "served": served,
        "live": run.text if live else None,
        "error": ERROR,
        "ramp": {theme: base64.b64encode(ramp(theme).tobytes()).decode() for theme in THEMES},
    }
    parts = {
        "policy": html.escape(policy(served)),
        "title": html.escape(_title(run)),
        "above": sections("above"),
        "main": sections("main"),
        "below": sections("below"),
        "style": stripped(_part("page.css")),
        "views": packed("\n".join(stripped(_part(f"views/{view.name}.css")) for view in VIEWS).encode()),
        "script": packed(_script().encode()),
        "opener": _part("opener.js"),
        "data": "\n".join(_blocks(data, () if served else runs)),
    }
    return filled(_part("page.html"), parts)


def frame_of(run: Run) -> str:
    """What a notebook shows: the page in a sandboxed <iframe> without access to the notebook or the network; or a
    sentence, if the run is too long for one page.

    >>> import numpy as np
    >>> from regard.lens.look import of_arrays
    >>> frame_of(of_arrays(*np.zeros((2, 1, 4, 8))))[:41]
    '<iframe sandbox="allow-scripts allow-down'
    """
    if not embed.fits(run):
        return (
            f"<p>This run of {html.escape(run.model)} is too long for one page: save it with "
            "<code>run.save(folder)</code> and open it with <code>regard look folder --serve</code>.</p>"
        )
    return (
        '<iframe sandbox="allow-scripts allow-downloads" referrerpolicy="no-referrer" title="regard" '
        f'width="100%" height="{HEIGHT}" '
        f'style="border: 0; border-radius: 8px" srcdoc="{html.escape(page(run))}"></iframe>'
    )


def frame_of_call(call: Call) -> str:
    """What a notebook shows of a call: the page of a run that has only this call."""
    _, Q, K = call.shape
    rows, keys = call.axes or (Axis.of(Q, name=call.queries), Axis.of(K, name=call.keys))
    measured = call if call.rows.keys() >= FIGURES else with_figures(call, keys.special)
    return frame_of(Run(call.name, "", {call.queries: rows, call.keys: keys}, (measured,)))


def policy(served: bool) -> str:
    """The content security policy of the page: its own scripts and style, images that it draws, and its server."""
    server = "'self'" if served else "'none'"
    scripts = f"{hashed(_part('opener.js'))} {hashed(_script())}"
    return (
        f"default-src 'none'; script-src {scripts}; style-src {hashed(stripped(_part('page.css')))}; "
        f"img-src data: blob:; connect-src {server}; base-uri 'none'; form-action 'none'"
    )


def _blocks(data, runs: Sequence[Run]):
    for number, run in enumerate(runs):
        start = data["runs"][number]["start"]
        for name, text in embed.blocks(number, run, start["call"]):
            yield f'<script type="text/plain" id="{name}">{text}</script>'
        made = queries.kept(run.calls[start["call"]], start) if any(embed.walked(run, start["call"])) else None
        if made is not None:
            yield f'<script type="text/plain" id="matrices-{number}-{start["call"]}">{packed(made)}</script>'
    yield f'<script type="text/plain" id="data">{packed(json.dumps(data, allow_nan=False).encode())}</script>'


def _within(run: Run, start: dict[str, Any]) -> dict[str, int]:
    """The same place in a run of other sizes, or the nearest that it has."""
    call = min(start["call"], len(run.calls) - 1)
    H, Q, _ = run.calls[call].shape
    return {"call": call, "head": min(start["head"], H - 1), "query": min(start["query"], Q - 1)}


def _check_start(run: Run, start: Mapping[str, Any]) -> None:
    if unknown := start.keys() - {"call", "head", "query", "why"}:
        what = f"unknown name {min(unknown)!r} in start"
        raise refuse("page", what, f"start={dict(start)}", "call, head and query", "leave it out")
    shape = run.calls[start["call"]].shape if 0 <= start["call"] < len(run.calls) else (0, 0, 0)
    for name, count in (("call", len(run.calls)), ("head", shape[0]), ("query", shape[1])):
        if not 0 <= start[name] < count:
            raise refuse("page", f"no such {name}", f"{name}={start[name]}", f"0 to {count - 1}", "count from 0")


def _check_figures(runs: Sequence[Run]) -> None:
    bare = [call.name for run in runs for call in run.calls if call.received is None or not call.rows.keys() >= FIGURES]
    if bare:
        raise refuse(
            "page",
            "calls without figures",
            ", ".join(bare[:3]),
            "calls with rows and received",
            "record runs with regard.look, which computes them, or add them with "
            "regard.lens.runs.figures.with_figures(call, special)",
        )


def _part(name: str) -> str:
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    shared = visuals.script((), SHARED)
    return "\n".join(['"use strict";', shared, *(stripped(_part(f"{name}.js")) for name in SCRIPTS)])


def _title(run: Run) -> str:
    """What the tab of a browser shows: the model, and how the text begins."""
    text = clipped(words(" ".join(run.text.split())), 40)
    return " · ".join(filter(None, ("regard", visible(run.model), text)))


class View(NamedTuple):
    """A section of the page.

    place: above, main or below · hidden: hidden until its script shows it · parts: further scripts, which other views
    may use as well.
    """

    name: str
    place: str
    hidden: bool = False
    parts: tuple[str, ...] = ()


VIEWS = (
    View("live", "above", hidden=True),
    View("findings", "above", hidden=True),
    View("steps", "above", hidden=True),
    View(
        "reader",
        "main",
        parts=(
            "reader/flow",
            "reader/reading",
            "reader/strongest",
            "reader/find",
            "reader/patches",
            "reader/walked",
        ),
    ),
    View(
        "map",
        "main",
        parts=(
            "plot/tiles",
            "plot/valued",
            "plot/axes",
            "plot/cellmarks",
            "plot/plot",
            "plot/measure",
            "plot/drive",
            "plot/difference",
        ),
    ),
    View("atlas", "main", parts=("atlas/metrics", "atlas/thumbnails", "atlas/headtable")),
    View("stream", "below", hidden=True),
    View("lines", "below", parts=("lines/window",)),
    View(
        "compare",
        "below",
        parts=("compare/alignment", "compare/merged", "compare/place", "compare/lists"),
    ),
    View(
        "walk",
        "below",
        parts=("walk/cells", "walk/stages", "walk/terms", "walk/matrices", "walk/numbers"),
    ),
)

# In the order in which they run: common scripts, the parts of views, the views, and scripts that use the views.
SCRIPTS = (
    *("base", "tokens", "source", "means", "heads", "state", "folds", "listbox", "legend"),
    *(part for view in VIEWS for part in view.parts),
    *(f"views/{view.name}" for view in VIEWS),
    *("figure", "share", "keys"),
)
SHARED = ("button", "draw", "make", "slider", "stepOf")  # functions of the visuals that the page calls itself


def sections(place: str) -> str:
    """The <section> elements of the views at this place, which their scripts fill."""
    return "\n".join(
        f'<section id="{view.name}" aria-labelledby="{view.name}-title"{" hidden" * view.hidden}></section>'
        for view in VIEWS
        if view.place == place
    )
