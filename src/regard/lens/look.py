"""`look`: records a model with a text, a module with its inputs, or plain arrays as a Run; runs of arrays."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..common.arrays import is_tensor, read_array
from ..common.errors import Reason, Refused, refuse
from ..common.module_settings import is_transformers_model
from ..common.optional import requires_extra
from ..common.text.characters import clipped
from ..common.text.keywords import known_keywords
from ..common.text.units import counted
from ..language.expr import Expr
from ..language.problem import Problem
from .open_model import OpenModel
from .recording.keeper import RecordingOptions, facts, layer_selection
from .runs.axis import Axis
from .runs.call import UNMEASURED, Call
from .runs.detectors import checked, of_tokens
from .runs.effects import Effects
from .runs.figures import with_figures
from .runs.run import Run
from .storage.reader import is_run, open_run
from .text_or_path import is_text
from .trained import is_trained

DEFAULTS = {"generate": 0, "entry": 0, "limit": "2GB", "overwrite": False}  # of the arguments that are not None
# The arguments that each kind of `what` accepts.
RULES = ("mask", "score", "scale", "query_start", "sinks")
RECORDED = ("layers", "entry", "values", "limit", "into", "overwrite", "measures", "effects")
ACCEPTED = {
    "a recorded run": (),
    "a trained model": ("text", "generate", "layers", "values", "limit", "into", "overwrite", "measures"),
    "a model": ("text", "target", "picture", "inputs", "tokenizer", "generate", *RECORDED),
    "a module": ("inputs", "tokens", *RECORDED),
    "q and k": ("k", "v", "tokens", "special", "measures", *RULES),
    "weights": ("weights", "mask", "query_start", "tokens", "special", "entry", "measures"),
}


@requires_extra("look", "look")
@known_keywords
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
    measures: Mapping[str, Any] | None = None,
    effects: Effects | None = None,
) -> Run:
    """Runs a model once, or reads arrays, and returns every attention call as a `Run`.

    p[h, i, j] = exp(score(i, j) − lse[h, i]) where the mask allows, 0 elsewhere

    What is recorded depends on `what`:

    - a model of transformers: a folder, a hub id, a loaded model, or None for the default model (MiniLM); it needs
      `text`, `picture` or `inputs`
    - a folder of `regard train` or `regard classify`; without `text`, the beginning of its validation text
    - a text, for the default model: a string that contains spaces and is not the path of a file
    - any torch module or function: it needs `inputs`
    - q (H, Q, D) with `k` (G, K, D), or None with `weights` (H, Q, K): one call without a model
    - the folder of a recorded run, which is opened

    A folder or hub id is opened on regard in float32, from safetensors files; code of the model's repository is never
    executed. A loaded model runs unchanged, without gradients. The output of every call is compared with the output
    that follows from its recorded numbers: `notes["difference"]` is the largest difference, as a share of the largest
    output. Handwritten attention is recorded as a mask and a score rule if every step is known and they reproduce the
    model's weights, otherwise as given weights. Calls that cannot be recorded are listed in `facts["left_out"]`.

    Args:
        what: the model, module, array or run folder; or a text.
        text: the text for the model, or several texts, of which `entry` is recorded.
        target: the target text of an encoder–decoder model, for its decoder.
        picture: an image for a vision model: a path, a PIL image, or a uint8 array (rows, columns, 3).
        inputs: the arguments of the model: a dict by name; for a module also a tensor, a tuple, or a function that
            returns them.
        tokenizer: the tokenizer or processor of a loaded model.
        generate: how many tokens the model generates greedily; each becomes a row of every call, and a `Step`.
        layers: which layers to record, by number or by name with wildcards: [0, 5], "*.attn". None records all.
        entry: the batch entry to record.
        values: whether to store the layer input x (Q, d), v (G, K, E) and the output (H, Q, E). None stores them if
            the run stays below 64 MB.
        limit: the most bytes to store, as a number or as text such as "2GB".
        into: a folder to which calls are written one by one, instead of memory.
        overwrite: whether `into` may contain an older run, which is replaced.
        k: (G, K, D) keys, if `what` is q.
        v: (G, K, E) values, if `what` is q.
        weights: (Q, K), (H, Q, K) or (B, H, Q, K) attention weights, or a list with one array per layer.
        mask: the mask of q and k, as for `attention`; with `weights`, the pairs that may have weight.
        score: the score rule of q and k, as for `attention`.
        scale: the factor of q·k; None is 1/√D.
        query_start: the key position of row 0; None is K − Q.
        sinks: (H,) or (H, S) additional logits in the denominator, as for `attention`.
        tokens: the tokens of the keys (for a module: of the rows), as text.
        special: (K,) booleans: which keys are special tokens.
        measures: sets of keys by name, as masks over `head`, `query`, `key` and `regard.lens.token`, the table of the
            run's tokens: `token[key]` is a number in the vocabulary (of `tokens`, equal ones have equal numbers), and
            `token["it"]` that of a word. The weight on them becomes a figure of every row and head, like `duplicate`
            and `induction`, which texts with repeated tokens have and which a measure of this name replaces.
        effects: what `regard.effects` returned for this model and input: the run has it as `run.effects`, and is shown
            from the head that matters most on.

    Returns:
        The run. `run.calls` are the attention calls in order.

    Raises:
        Refused: listing every problem: arguments that have no meaning for `what`, texts that are too long, missing or
            unsafe files, unknown layers, runs above `limit`, and models without an attention call that is observed.

    Examples:
        >>> import numpy as np, regard as rg
        >>> q, k = np.random.default_rng(0).standard_normal((2, 2, 5, 8))
        >>> run = rg.look(q, k=k, mask=rg.causal())
        >>> run.calls[0].weights(rows=[0], heads=0)
        array([[[1., 0., 0., 0., 0.]]])
    """
    if isinstance(what, str) and is_text(what):
        what, text = None, _only(what, {"text": text, "picture": picture, "inputs": inputs})
    given = {
        name: value
        for name, value in locals().items()
        if name != "what" and value is not None and (name not in DEFAULTS or value != DEFAULTS[name])
    }
    kind = _kind(what, given)
    _check(kind, what, given)
    own = checked(measures)
    if kind == "a recorded run":
        return open_run(what)
    if kind == "q and k":
        return of_arrays(what, **{**given, "measures": own})
    if kind == "weights":
        return of_weights(**{**given, "measures": own})
    options = RecordingOptions(layer_selection(layers), entry, values, limit, into, overwrite, own, effects)
    if kind == "a module":
        from .recording.entry import of_module  # loads torch

        return of_module(what, inputs, tokens, options)
    run = OpenModel(what, options, generate, tokenizer)(text, target=target, image=picture, inputs=inputs)
    return _with_origin(run, what, given)


def _kind(what: Any, given: Mapping[str, Any]) -> str:
    """The kind of `what`, a key of `ACCEPTED`."""
    if what is None or isinstance(what, str | Path):
        if what is None and "weights" in given:
            return "weights"
        if what is not None and is_run(what):
            return "a recorded run"
        return "a trained model" if is_trained(what) else "a model"
    if is_transformers_model(what):
        return "a model"
    if is_tensor(what) or hasattr(what, "__array__") or isinstance(what, list | tuple):
        return "q and k"
    if callable(what):
        return "a module"
    raise refuse(
        "look",
        "an argument of a type that cannot be recorded",
        type(what).__name__,
        "a model, a folder or hub id, a torch module, a recorded run, or q with k=",
        "see help(regard.look)",
    )


def _check(kind: str, what: Any, given: Mapping[str, Any]) -> None:
    """Refuses every argument that this kind does not accept, and missing arguments."""
    accepted = ACCEPTED[kind]
    reasons = [
        Reason(
            f"{name}= has no meaning for {kind}",
            f"{name}={_short(value)}",
            ", ".join(accepted) or "the folder alone",
            "leave it out",
        )
        for name, value in given.items()
        if name not in accepted
    ]
    if kind == "q and k" and "k" not in given:
        reasons.append(
            Reason("q without k", type(what).__name__, "q and k", "pass k=, or weights= if only the weights are known")
        )
    if kind == "a module" and "inputs" not in given:
        reasons.append(
            Reason(
                "nothing to run", f"{type(what).__name__} without inputs", "the arguments of the module", "pass inputs="
            )
        )
    if kind == "a model":
        sources = [name for name in ("text", "picture", "inputs") if name in given]
        if not sources:
            named = isinstance(what, str) and not Path(what).expanduser().exists()
            also = f"; if {_short(what)} is the text: look(None, {_short(what)})" if named else ""
            fix = f"pass a text{also}"
            reasons.append(
                Reason("nothing to run", "no text, image or inputs", "one of text=, picture= and inputs=", fix)
            )
        if "inputs" in given and len(sources) > 1:
            reasons.append(
                Reason(
                    "two kinds of inputs",
                    " and ".join(f"{name}=" for name in sources),
                    "inputs, or a text or image to make them from",
                    "leave one of them out",
                )
            )
    if reasons:
        raise Refused("look", reasons)


def _only(text: str, others: Mapping[str, Any]) -> str:
    """The text that is in the place of the model, if it is the only input."""
    more = [f"{name}={_short(value)}" for name, value in others.items() if value is not None]
    if more:
        raise refuse(
            "look",
            "a text in the place of the model",
            f"look({_short(text)}, {', '.join(more)})",
            "one text, or a model and its input",
            "pass a second text as --compare, or the text alone; a model's name has no spaces, its folder must exist",
        )
    return text


def _short(value: Any) -> str:
    if isinstance(value, str):
        return repr(clipped(value, 60))
    return repr(value) if isinstance(value, int | float) else type(value).__name__


def _with_origin(run: Run, what: Any, given: Mapping[str, Any]) -> Run:
    """The run with the arguments that reproduce it as the fact `made`.

    A run whose arguments are not strings and numbers is returned unchanged.
    """
    made = {
        name: list(value) if isinstance(value, list | tuple) else value
        for name, value in {"what": what, **given}.items()
        if name not in ("into", "overwrite", "effects")
    }
    for name in ("what", "picture"):
        value = made.get(name)
        if isinstance(value, str | Path):
            path = Path(value).expanduser()
            made[name] = str(path.resolve() if path.exists() else value)
    parts = [one for value in made.values() for one in (value if isinstance(value, list) else [value])]
    if not all(isinstance(part, str | int | None) for part in parts):
        return run
    if made.get("text") == run.text:
        del made["text"]  # the run has it already, and it may be long
    return dataclasses.replace(run, facts={**run.facts, "made": made})


def of_arrays(
    q,
    k,
    v=None,
    *,
    tokens: Sequence[str] | None = None,
    special=None,
    measures: Mapping[str, Expr] | None = None,
    **rules: Any,
) -> Run:
    """A run of one call from its q (H, Q, D) and k (G, K, D), with the mask and score rules of `attention`.

    >>> import numpy as np
    >>> of_arrays(*np.zeros((2, 1, 4, 8))).calls[0].weights(rows=[0])
    array([[[0.25, 0.25, 0.25, 0.25]]])
    """
    problem = Problem.of(q, k, v, where="look", **rules)
    if len(problem.q) != 1:
        raise refuse(
            "look",
            "several batch entries",
            f"q {list(np.shape(q))}",
            "one batch entry: (heads, rows, depth)",
            "pass q[0] and k[0]",
        )
    axes = _axes(problem.dims["Q"], problem.dims["K"], int(problem.query_start[0]), tokens, special)
    call = Call(
        "attention",
        0,
        queries=next(iter(axes)),
        keys="keys",
        lse=UNMEASURED,
        q=problem.q[0],
        k=problem.k[0],
        mask=problem.mask,
        score=problem.score,
        scale=problem.scale,
        start=int(problem.query_start[0]),
        sinks=problem.sinks,
        v=None if v is None else problem.v[0],
    )
    return Run("arrays", "", axes, (_with_figures(call, axes, measures),), facts=facts())


def _with_figures(call: Call, axes: Mapping[str, Axis], measures: Mapping[str, Expr] | None) -> Call:
    sets = of_tokens(axes["keys"], measures or {}) if call.aligned else {}
    return with_figures(call, axes["keys"].special, sets)


def of_weights(
    weights,
    *,
    mask=None,
    query_start=None,
    tokens: Sequence[str] | None = None,
    special=None,
    entry: int = 0,
    measures: Mapping[str, Expr] | None = None,
) -> Run:
    """A run of given weights: (Q, K), (H, Q, K) or (B, H, Q, K) of one layer, or a list with one array per layer.

    Examples:
        >>> import numpy as np, regard as rg
        >>> call = of_weights(np.full((1, 2, 2), 0.5), mask=rg.causal()).calls[0]
        >>> float(call.rows["forbidden"][0, 0])
        0.5
    """
    layers = list(weights) if isinstance(weights, list | tuple) else [weights]
    held = [_of_entry(read_array(each, "weights"), entry) for each in layers]
    sizes = {each.shape[1:] for each in held}
    if not held or len(sizes) != 1:
        raise refuse(
            "look",
            "weights of different sizes",
            ", ".join(map(str, sorted(sizes))) or "none",
            "the same rows and keys in all layers",
            "pass the layers one by one",
        )
    Q, K = sizes.pop()
    rules = [_rule(len(each), Q, K, mask, query_start) for each in held]
    start = int(rules[0].query_start[0])
    axes = _axes(Q, K, start, tokens, special)
    rows = next(iter(axes))
    calls = (
        Call(f"layer {number}", number, rows, "keys", UNMEASURED, mask=rule.mask, start=start, given=each)
        for number, (each, rule) in enumerate(zip(held, rules, strict=True))
    )
    measured = tuple(_with_figures(call, axes, measures) for call in calls)
    return Run("weights", "", axes, measured, facts=facts() | {"exact": "the weights are those that were passed"})


def _rule(H: int, Q: int, K: int, mask, query_start) -> Problem:
    """A problem with the mask as `attention` interprets it, for weights (H, Q, K)."""
    empty = np.zeros((H, 1, 1), np.float32)
    q, k = (np.broadcast_to(empty, (H, size, 1)) for size in (Q, K))
    return Problem.of(q, k, None, mask=mask, query_start=query_start, where="look")


def _of_entry(weights: np.ndarray, entry: int) -> np.ndarray:
    if weights.ndim == 4 and 0 <= entry < len(weights):
        return weights[entry]
    if weights.ndim in (2, 3) and not entry:
        return weights.reshape(-1, *weights.shape[-2:])
    raise refuse(
        "look",
        "not an array of weights",
        f"{list(weights.shape)} with entry={entry}",
        "(H, Q, K), or (B, H, Q, K) with an entry in its batch",
        "pass one array per layer, its axes in the order heads, rows, keys",
    )


def _axes(Q: int, K: int, start: int, tokens: Sequence[str] | None, special) -> dict[str, Axis]:
    """The key axis, which is also the query axis if the sizes are equal and row 0 is at key 0."""
    words = [str(i) for i in range(K)] if tokens is None else list(tokens)
    if len(words) != K:
        raise refuse(
            "look",
            "the number of tokens is not the number of keys",
            f"{counted(len(words), 'token')} for {counted(K, 'key')}",
            "one token per key",
            "check the tokens",
        )
    keys = Axis.of(words, special, "keys")
    return {"keys": keys} if Q == K and start == 0 else {"queries": Axis.of(Q, None, "queries"), "keys": keys}
