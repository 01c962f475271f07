"""The page of a run: one HTML file that needs nothing else, opens from the disk, and treats every token as foreign
text.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from ...common.errors import Reason, Refused, refuse
from ..drawing.ramp import ramp
from ..runs.codes import FINE_ERROR, percent
from ..runs.labels import visible
from ..runs.run import Run
from . import embed
from .python_source import origin
from .queries import about, plain
from .views import SCRIPTS, STYLES, sections

__all__ = ["json_for_html", "page", "policy"]

FIGURES = {"attended", "entropy", "maximum", "special", "spread"}  # of every row, without which a page cannot draw
THEMES = ("light", "dark", "diverging-light", "diverging-dark")


def page(
    run: Run,
    other: Run | None = None,
    *,
    findings: Sequence[Mapping[str, Any]] = (),
    start: Mapping[str, int] | None = None,
    served: bool = False,
) -> str:
    """The run as one self-contained HTML page.

    other: a second run with as many heads over axes of the same sizes, to compare with · findings: of an audit, as JSON
    · start: what is shown first: {"call", "head", "query"} · served: leave the numbers out; the page asks the server
    that sent it.
    Refused: more than 60 million weights unless served; calls without figures; a place that is not there; runs that
    cannot be compared.

    >>> import numpy as np
    >>> from regard.lens.look import of_arrays
    >>> page(of_arrays(*np.ones((2, 1, 4, 8)))).startswith("<!doctype html>")
    True
    """
    runs = [run] if other is None else [run, other]
    _measured(runs)
    if other is not None:
        _comparable(run, other)
    if not served and not all(map(embed.fits, runs)):
        _, Q, K = max((call.shape for call in run.calls), key=lambda shape: shape[1] * shape[2])
        given = f"{run.model}: {sum(call.shape[0] for call in run.calls)} heads, the largest of {Q:,} × {K:,}"
        raise refuse(
            "page",
            "too much for one page",
            given=given,
            expected=f"at most {embed.MOST:,} weights, {embed.LARGEST:,} of them in one head",
            fix="serve it (regard look --serve), or record fewer layers",
        )
    begin = {"call": 0, "head": 0, "query": 0} | dict(start or {})
    _there(run, begin)
    data = {
        "runs": [about(each) | {"kept": None if served else embed.kept(each)} for each in runs],
        "findings": plain(list(findings)),
        "start": begin,
        "served": served,
        "error": percent(FINE_ERROR),
        "python": [origin(each) for each in runs],
        "ramp": {theme: base64.b64encode(ramp(theme).tobytes()).decode() for theme in THEMES},
    }
    parts = {
        "policy": html.escape(policy(served), quote=True),
        "title": html.escape(f"regard · {visible(run.model)}"),
        "above": sections("above"),
        "main": sections("main"),
        "below": sections("below"),
        "style": _style(),
        "script": _script(),
        "data": "\n".join(_blocks(data, () if served else runs)),
    }
    # One walk over the template: what was filled in is never looked at again, whatever it contains.
    first, *rest = _part("page.html").split("{{")
    made = [first]
    for piece in rest:
        name, after = piece.split("}}", 1)
        made += [parts[name], after]
    return "".join(made)


def policy(served: bool) -> str:
    """What the page may do: its own script and style, pictures that it draws, and the server that sent it."""
    server = "'self'" if served else "'none'"
    return (
        f"default-src 'none'; script-src {_hash(_script())}; style-src {_hash(_style())}; img-src data: blob:; "
        f"connect-src {server}; base-uri 'none'; form-action 'none'"
    )


def json_for_html(data) -> str:
    r"""JSON that cannot end the script element it stands in, nor start another.

    >>> json_for_html("</script>\u2028&")
    '"\\u003c/script\\u003e\\u2028\\u0026"'
    """
    return json.dumps(data, allow_nan=False).translate({ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"})


def _blocks(data, runs: Sequence[Run]):
    for number, run in enumerate(runs):
        for name, text in embed.blocks(number, run):
            yield f'<script type="text/plain" id="{name}">{text}</script>'
    yield f'<script type="application/json" id="data">{json_for_html(data)}</script>'


def _there(run: Run, start: Mapping[str, int]) -> None:
    reasons = [
        Reason(
            f"no such name as {name!r}",
            given=f"start={dict(start)}",
            expected="call, head and query",
            fix="leave it out",
        )
        for name in start
        if name not in ("call", "head", "query")
    ]
    shape = run.calls[start["call"]].shape if 0 <= start["call"] < len(run.calls) else (0, 0, 0)
    for name, count in (("call", len(run.calls)), ("head", shape[0]), ("query", shape[1])):
        if not 0 <= start[name] < count:
            reasons.append(
                Reason(
                    f"no such {name}", given=f"{name}={start[name]}", expected=f"0 to {count - 1}", fix="count from 0"
                )
            )
    if reasons:
        raise Refused("page", reasons[:1])


def _measured(runs: Sequence[Run]) -> None:
    bare = [call.name for run in runs for call in run.calls if call.received is None or not call.rows.keys() >= FIGURES]
    if bare:
        raise refuse(
            "page",
            "calls without figures",
            given=", ".join(bare[:3]),
            expected="rows, received",
            fix="make runs with regard.look, which "
            "measures them, or add them: regard.lens.runs.figures.with_figures(call, special)",
        )


def _comparable(run: Run, other: Run) -> None:
    ours, theirs = ([(call.shape, call.queries, call.keys) for call in each.calls] for each in (run, other))
    if ours != theirs:
        given = [
            (
                f"{len(each.calls)} calls of "
                f"{', '.join(map(str, sorted({call.shape[0] for call in each.calls})))} heads over "
            )
            + ", ".join(f"{name} of {len(axis)}" for name, axis in each.axes.items())
            for each in (run, other)
        ]
        raise refuse(
            "page",
            "runs that cannot be laid over each other",
            given="; ".join(given),
            expected="as many calls of as many heads, over axes of the same names and sizes",
            fix="record both from the same text, with models of the same shape",
        )


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return files(__package__).joinpath("web", name).read_text(encoding="utf-8")


@functools.cache
def _script() -> str:
    return "\n".join(_plain(_part(f"{name}.js")) for name in SCRIPTS)


@functools.cache
def _style() -> str:
    return "\n".join(_plain(_part(f"{name}.css")) for name in STYLES)


def _plain(code: str) -> str:
    """The lines of a file without their indentation, and without those that are a comment alone: a sixth of a
    script.
    """
    lines = [line.strip() for line in code.splitlines()]
    return "\n".join(
        line
        for line in lines
        if line and not line.startswith("//") and not (line.startswith("/*") and line.endswith("*/"))
    )
