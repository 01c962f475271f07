"""`look`: what is given (a model and a text, a module and its inputs, or plain arrays) becomes a Run."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..common.arrays import is_tensor
from ..common.errors import Reason, Refused, refuse
from ..common.module_settings import is_transformers_model
from .recording.from_arrays import of_arrays, of_weights
from .recording.keeper import RecordingOptions
from .recording.minilm import record_text
from .runs.run import Run
from .storage.reader import is_run, open_run

__all__ = ["look", "of_arrays", "of_weights"]

# Which arguments each kind of thing to look at takes besides itself.
RULES = ("mask", "score", "scale", "query_start", "sinks")
RECORDED = ("layers", "entry", "values", "limit", "into", "overwrite")
TAKES = {
    "a recorded run": (),
    "a model": ("text", "target", "picture", "inputs", "tokenizer", "generate", *RECORDED),
    "a module": ("inputs", "tokens", *RECORDED),
    "q and k": ("k", "v", "tokens", "special", *RULES),
    "weights": ("weights", "mask", "query_start", "tokens", "special", "entry"),
}


def look(
    what: Any = None,
    text: str | Sequence[str] | None = None,
    *,
    target: str | Sequence[str] | None = None,
    picture: Any = None,
    inputs: Any = None,
    tokenizer: Any = None,
    generate: int = 0,
    layers: Sequence[int | str] | int | str | None = None,
    entry: int = 0,
    values: bool | None = None,
    limit: int | str = "2GB",
    into: str | Path | None = None,
    overwrite: bool = False,
    k: Any = None,
    v: Any = None,
    weights: Any = None,
    mask: Any = None,
    score: Any = None,
    scale: float | None = None,
    query_start: int | None = None,
    sinks: Any = None,
    tokens: Sequence[str] | None = None,
    special: Any = None,
) -> Run:
    """Attention as it was, to be looked at: every attention call of a model that runs once, as a `Run`.

    p[h, i, j] = exp(score(i, j) − lse[h, i]) where the mask allows

    what: a folder of a model, a hub id, or None for MiniLM; a loaded model of transformers; any torch module or
    function; the folder of a recorded run; q (H, Q, D) with k (G, K, D); or None with weights (H, Q, K).

    =============== ====================================================================================================
    of a model      text, or several, of which `entry` is looked at · target, for the decoder of an encoder–decoder ·
                    picture: a path, an image or an array (rows, columns, 3) · inputs: its arguments by name instead ·
                    tokenizer: what reads texts or pictures for a loaded model · generate: how many tokens it writes
                    greedily, each step a row
    of a module     inputs: a tensor, a tuple, a dict, or a function that makes them · tokens: the words of the rows
    of q and k      v, and the rules of `attention`: mask, score, scale, query_start, sinks · tokens and special: of
                    the keys
    of weights      one array or a list, one for each layer · mask: what they should keep to · tokens and special
    =============== ====================================================================================================

    layers: those to keep, by number or by name with wildcards: [0, 5], "*.attn" · values: whether what the layer was
    given (Q, d), v (G, K, E) and what came out (H, Q, E) are kept as well; None keeps them where the whole stays below
    64 MB · limit: the most that is kept, in bytes or as "2GB" · into: a folder to which calls are written one by one,
    instead of memory, and with overwrite in place of an older run.

    A model that is opened here runs on regard, in float32, from safetensors, and no code of its own is run. A loaded
    one runs as it is, without gradients, and is left as it was. What comes out of every call is compared with its
    recorded numbers (notes["difference"], a share of the largest). Attention that is written out is recorded as rules
    where every step is known and they give the weights that the model used, otherwise as these weights. What cannot be
    kept stands in facts["left_out"].

    Refused, with all reasons: arguments that do not belong to what is given, texts that are too long, files that are
    not there or not safe, layers that are not there, runs beyond the limit, models in which no attention is seen.

    >>> import numpy as np, regard as rg
    >>> run = look(*np.random.default_rng(0).standard_normal((1, 2, 5, 8)), k=np.ones((2, 5, 8)), mask=rg.causal())
    >>> run.calls[0].weights(rows=[0]).round(2)[0]
    array([[1., 0., 0., 0., 0.]])
    """
    given = {
        name: value
        for name, value in {
            "text": text,
            "target": target,
            "picture": picture,
            "inputs": inputs,
            "tokenizer": tokenizer,
            "generate": generate or None,
            "layers": layers,
            "entry": entry or None,
            "values": values,
            "limit": None if limit == "2GB" else limit,
            "into": into,
            "overwrite": overwrite or None,
            "k": k,
            "v": v,
            "weights": weights,
            "mask": mask,
            "score": score,
            "scale": scale,
            "query_start": query_start,
            "sinks": sinks,
            "tokens": tokens,
            "special": special,
        }.items()
        if value is not None
    }
    kind = _kind(what, given)
    _check(kind, what, given)
    if kind == "a recorded run":
        return open_run(what)
    if kind == "q and k":
        return of_arrays(
            what,
            k,
            v,
            tokens=tokens,
            special=special,
            mask=mask,
            score=score,
            scale=scale,
            query_start=query_start,
            sinks=sinks,
        )
    if kind == "weights":
        return of_weights(weights, mask=mask, query_start=query_start, tokens=tokens, special=special, entry=entry)
    options = RecordingOptions(_layers(layers), entry, values, limit, into, overwrite)
    if what is None and isinstance(text, str) and not given.keys() & {"target", "picture", "tokenizer", "generate"}:
        return _signed(record_text(text, options), what, given)
    try:
        from .recording.entry import of_model, of_module
    except ImportError as error:
        raise refuse(
            "look", "models cannot be run", given=f"{error}", expected="torch", fix="pip install 'regard[hf]'"
        ) from error
    if kind == "a module":
        return of_module(what, inputs, tokens, options)
    run = of_model(
        what,
        options,
        text=text,
        target=target,
        picture=picture,
        inputs=inputs,
        tokenizer=tokenizer,
        generate=generate,
    )
    return _signed(run, what, given)


def _kind(what: Any, given: Mapping[str, Any]) -> str:
    """Which of the kinds above this is."""
    if what is None or isinstance(what, str | Path):
        if what is None and "weights" in given:
            return "weights"
        return "a recorded run" if what is not None and is_run(what) else "a model"
    if is_transformers_model(what):
        return "a model"
    if is_tensor(what) or hasattr(what, "__array__") or isinstance(what, list | tuple):
        return "q and k"
    if callable(what):
        return "a module"
    raise refuse(
        "look",
        "nothing that can be looked at",
        given=type(what).__name__,
        expected="a model, a folder or hub id, a torch module, a recorded run, or q with k=",
        fix="see help(regard.look)",
    )


def _check(kind: str, what: Any, given: Mapping[str, Any]) -> None:
    """Every argument that this kind does not take, and what it lacks."""
    takes = TAKES[kind]
    reasons = [
        Reason(
            f"{name}= has no meaning for {kind}",
            given=f"{name}={_short(value)}",
            expected=", ".join(takes) or "the folder alone",
            fix="leave it out",
        )
        for name, value in given.items()
        if name not in takes
    ]
    if kind == "q and k" and "k" not in given:
        reasons.append(
            Reason(
                "q without k",
                given=type(what).__name__,
                expected="both",
                fix="pass k=, or weights= where only the weights are known",
            )
        )
    if kind == "a module" and "inputs" not in given:
        reasons.append(
            Reason(
                "nothing to run",
                given=f"{type(what).__name__} without inputs",
                expected="what it is called with",
                fix="pass inputs=",
            )
        )
    if kind == "a model":
        sources = [name for name in ("text", "picture", "inputs") if name in given]
        if not sources:
            as_text = isinstance(what, str) and " " in what.strip()
            mend = f"the first argument is the model: look(None, {_short(what)})" if as_text else "pass a text"
            reasons.append(
                Reason("nothing to run", given="no text, picture or inputs", expected="one of them", fix=mend)
            )
        if "inputs" in given and len(sources) > 1:
            reasons.append(
                Reason(
                    "two inputs",
                    given=" and ".join(f"{name}=" for name in sources),
                    expected="inputs, or what they are made of",
                    fix="leave one of them out",
                )
            )
    if reasons:
        raise Refused("look", reasons)


def _short(value: Any) -> str:
    shown = repr(value) if isinstance(value, str | int | float) else type(value).__name__
    return shown if len(shown) <= 60 else shown[:60] + " …"


def _signed(run: Run, what: Any, given: Mapping[str, Any]) -> Run:
    """The run with the arguments that make it again among its facts; one that lies in a folder, or that words cannot
    say, as it is.
    """
    made = {
        name: list(value) if isinstance(value, list | tuple) else value
        for name, value in {"what": what, **given}.items()
    }
    for name in ("what", "picture"):
        value = made.get(name)
        if isinstance(value, str | Path):
            path = Path(value).expanduser()
            made[name] = str(path.resolve() if path.exists() else value)
    parts = [one for value in made.values() for one in (value if isinstance(value, list) else [value])]
    if "into" in given or not all(isinstance(part, str | int | None) for part in parts):
        return run
    if made.get("text") == run.text:
        del made["text"]  # it is there already, and may be long
    return dataclasses.replace(run, facts={**run.facts, "made": made})


def _layers(layers) -> tuple[int | str, ...] | None:
    if layers is None:
        return None
    listed = (layers,) if isinstance(layers, int | str) else tuple(layers)
    wrong = [part for part in listed if isinstance(part, bool) or not isinstance(part, int | str)]
    if wrong or not listed:
        raise refuse(
            "look",
            "no choice of layers",
            given=f"layers={layers!r}",
            expected="numbers, names, or patterns such as '*.attn'",
            fix="leave it out for all layers",
        )
    return listed
