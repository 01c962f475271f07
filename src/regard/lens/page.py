"""The page of a run: one HTML file that needs nothing else, opens from the disk, and treats every token as foreign text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files

from ..errors import refuse
from .codes import COARSE_ERROR, FINE_ERROR, Coded, packed, percent
from .labels import visible
from .ramp import ramp
from .run import Run
from .stats import Statistics
from .survey import Survey, survey

__all__ = ["page"]


def page(run: Run, surveys: Sequence[Survey] | None = None, *, layer: int = 0, head: int = 0, token: int = 0) -> str:
    """The run as one self-contained HTML page, which first shows the given layer, head and token.

    surveys: what `survey(run)` gave, where it is at hand. Refused: more than 100 million weights; a layer, head or token that
    is not there.

    >>> import numpy as np
    >>> from regard.lens import Layer, Run
    >>> run = Run("toy", "a b", ("a", " b"), (False, False), (Layer.of(np.full((1, 2, 2), 0.5)),))
    >>> page(run).startswith("<!doctype html>")
    True
    """
    n = len(run.tokens)
    for name, value, count in (("layer", layer, len(run.layers)), ("token", token, n)):
        _within(name, value, count)
    _within("head", head, run.layers[layer].heads)
    found = survey(run) if surveys is None else surveys
    codes = [part.codes for part in found]
    fine = codes[0].fine is not None
    blobs = [blob for number, part in enumerate(codes) for blob in _blobs(number, part)]
    data = {
        "model": visible_text(run.model),
        "text": visible_text(run.text[:200]),
        "tokens": [visible(spelled) for spelled in run.tokens],
        "gap": [spelled.startswith(" ") or any(run.special[max(0, i - 1) : i + 1]) for i, spelled in enumerate(run.tokens)],
        "special": [bool(flag) for flag in run.special],
        "layers": [
            {"name": visible_text(part.name), "heads": part.heads, "statistics": _numbers(kept.figures)}
            for part, kept in zip(run.layers, found, strict=True)
        ],
        "start": {"layer": layer, "head": head, "token": token},
        "side": codes[0].pictures.shape[-1],
        "fine": fine,
        "broken": any(bool((part.coarse == 2).any()) for part in codes),
        "error": percent(FINE_ERROR if fine else COARSE_ERROR),
        "ramp": {theme: base64.b64encode(ramp(theme).tobytes()).decode() for theme in ("light", "dark")},
    }
    script = _part("draw.js") + _part("viewer.js")
    style = _part("viewer.css")
    policy = f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; base-uri 'none'; form-action 'none'"
    blobs.append(f'<script type="application/json" id="data">{json_for_html(data)}</script>')
    parts = {"policy": policy, "title": html.escape(f"regard · {data['text']}"), "style": style, "script": script,
             "data": "\n".join(blobs)}  # fmt: skip
    # One walk over the template: what was filled in is never looked at again, whatever it contains.
    first, *rest = _part("viewer.html").split("{{")
    made = [first]
    for piece in rest:
        name, after = piece.split("}}", 1)
        made += [parts[name], after]
    return "".join(made)


def json_for_html(data) -> str:
    r"""JSON that cannot end the script element it stands in, nor start another.

    >>> json_for_html("</script>\u2028&")
    '"\\u003c/script\\u003e\\u2028\\u0026"'
    """
    return json.dumps(data, allow_nan=False).translate({ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&"})


def visible_text(text: str) -> str:
    """A line of text with nothing hidden in it; spaces stay spaces."""
    return " ".join(visible(word) for word in text.split())


def _within(name: str, value: int, count: int) -> None:
    if not 0 <= value < count:
        raise refuse("page", f"no such {name}", f"{name}={value}", f"0 to {count - 1}", "count from 0")


def _blobs(number: int, codes: Coded) -> list[str]:
    """The codes of one layer as data blocks: one for the pictures, one or two per head."""
    parts = {f"pictures-{number}": codes.pictures}
    for head in range(len(codes.coarse)):
        parts[f"coarse-{number}-{head}"] = codes.coarse[head]
        if codes.fine is not None:
            parts[f"fine-{number}-{head}"] = codes.fine[head]
    return [f'<script type="text/plain" id="{name}">{packed(part)}</script>' for name, part in parts.items()]


def _numbers(figures: Statistics) -> dict[str, list[float | None]]:
    """Five figures of each statistic of each head; None where there is no number."""
    return {name: [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]
            for name, values in vars(figures).items()}  # fmt: skip


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
