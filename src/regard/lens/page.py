"""The page of a run: one HTML file that needs nothing else, opens from the disk, and treats every token as foreign text."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files

import numpy as np

from ..errors import refuse
from .codes import COARSE_ERROR, FINE_ERROR, coded, packed, percent
from .labels import visible
from .ramp import ramp
from .run import Run
from .stats import Statistics, statistics

__all__ = ["page"]

MOST = 100_000_000  # weights on one page, a byte each before packing: beyond, browsers take long to open it
SECOND_BYTE = 4_000_000  # up to so many weights, a second byte tells them to within 0.02 %
PICTURE = 44  # cells along the side of a picture in the atlas


def page(
    run: Run, figures: Sequence[Statistics] | None = None, *, layer: int = 0, head: int = 0, token: int = 0, track=iter
) -> str:
    """The run as one self-contained HTML page, which first shows the given layer, head and token.

    figures: what `statistics(run)` gave, where it is at hand. track: goes through the layers, and may show progress. Refused: a page of more than 100 million weights, a layer, head
    or token that is not there.

    >>> import numpy as np
    >>> from regard.lens import Layer, Run
    >>> run = Run("toy", "a b", ("a", " b"), (False, False), (Layer.of(np.full((1, 2, 2), 0.5)),))
    >>> page(run).startswith("<!doctype html>")
    True
    """
    n = len(run.tokens)
    cells = sum(part.heads for part in run.layers) * n * n
    if cells > MOST:
        raise refuse("page", "too much for one page", f"{cells // n // n} heads of {n} × {n} weights", f"at most {MOST:,} weights",
                     f"give a text of at most {math.isqrt(MOST * n * n // cells)} tokens")  # fmt: skip
    for name, value, count in (("layer", layer, len(run.layers)), ("token", token, n)):
        _within(name, value, count)
    _within("head", head, run.layers[layer].heads)
    found = statistics(run) if figures is None else figures
    fine = cells <= SECOND_BYTE
    blobs, broken = [], False
    for number, part in enumerate(track(run.layers)):
        codes = coded(part, n, PICTURE, fine)
        broken = broken or bool((codes.coarse == 2).any())
        blobs.append(_blob(f"pictures-{number}", codes.thumbnails))
        for index in range(part.heads):
            blobs.append(_blob(f"coarse-{number}-{index}", codes.coarse[index]))
            if codes.fine is not None:
                blobs.append(_blob(f"fine-{number}-{index}", codes.fine[index]))
    data = {
        "model": visible_text(run.model),
        "text": visible_text(run.text[:200]),
        "tokens": [visible(spelled) for spelled in run.tokens],
        "gap": [spelled.startswith(" ") or run.special[i] or (i > 0 and run.special[i - 1]) for i, spelled in enumerate(run.tokens)],
        "special": [bool(flag) for flag in run.special],
        "layers": [
            {"name": part.name, "heads": part.heads, "statistics": {name: _numbers(value) for name, value in vars(figure).items()}}
            for part, figure in zip(run.layers, found, strict=True)
        ],
        "start": {"layer": layer, "head": head, "token": token},
        "side": min(n, PICTURE),
        "fine": fine,
        "broken": broken,
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


def _blob(name: str, codes: np.ndarray) -> str:
    return f'<script type="text/plain" id="{name}">{packed(codes)}</script>'


def _numbers(values: np.ndarray) -> list[float | None]:
    """Five figures of each; None where there is no number."""
    return [float(f"{value:.5g}") if math.isfinite(value) else None for value in values]


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _part(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
