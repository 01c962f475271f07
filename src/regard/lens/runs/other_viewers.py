"""The weights of a run as BertViz and CircuitsVis take them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...common.errors import Reason, Refused, refuse
from .axis import Axis
from .call import Call

MOST = 100_000_000  # weights: the viewers write all of them into a page


def to_bertviz(recorded: Sequence[Call], axes: Mapping[str, Axis]) -> dict[str, Any]:
    """The arguments of `bertviz.head_view` and `bertviz.model_view`; see `Run.to_bertviz`."""
    try:
        import torch
    except ImportError:
        what, fix = "BertViz takes tensors of torch", "pip install torch, or call.weights() for arrays"
        raise refuse("to_bertviz", what, "no torch", "torch", fix) from None

    def layers(queries: str, keys: str) -> list[Any]:
        calls = [call for call in recorded if call.keys == keys and call.aligned == (queries == keys)]
        return [torch.from_numpy(weights[None]) for weights in _weights("to_bertviz", calls)]

    crossed = {(call.queries, call.keys) for call in recorded if not call.aligned}
    if not crossed and len({call.keys for call in recorded}) == 1:
        name = recorded[0].keys
        return {"attention": layers(name, name), "tokens": list(axes[name].tokens)}
    if len(crossed) != 1 or len(axes) != 2:
        shown = ", ".join(f"{queries} → {keys}" for queries, keys in sorted(crossed)) or ", ".join(axes)
        expected, fix = "one text, or the two of an encoder–decoder", "look at this run with regard"
        raise refuse("to_bertviz", "BertViz has no view of this run", shown, expected, fix)
    ((decoder, encoder),) = crossed
    found = {
        "encoder_attention": layers(encoder, encoder),
        "decoder_attention": layers(decoder, decoder),
        "cross_attention": layers(decoder, encoder),
    }
    tokens = {"encoder_tokens": list(axes[encoder].tokens), "decoder_tokens": list(axes[decoder].tokens)}
    return {name: value for name, value in found.items() if value} | tokens


def to_circuitsvis(chosen: Call, axes: Mapping[str, Axis]) -> dict[str, Any]:
    """The arguments of `circuitsvis.attention.attention_heads`; see `Run.to_circuitsvis`."""
    if not chosen.aligned:
        given, expected = f"{chosen.name}: {chosen.queries} → {chosen.keys}", "a call within one text"
        fix = "choose another call: [(call.queries, call.keys) for call in run.calls] lists them"
        raise refuse("to_circuitsvis", "rows and keys are different tokens", given, expected, fix)
    (weights,) = _weights("to_circuitsvis", [chosen])
    layer = chosen.name if chosen.layer is None else chosen.layer
    return {
        "attention": weights,
        "tokens": list(axes[chosen.keys].tokens),
        "attention_head_names": [f"{layer}.{head}" for head in range(len(weights))],
        "mask_upper_tri": not np.triu(weights, 1).any(),
    }


def _weights(where: str, calls: Sequence[Call]) -> list[np.ndarray]:
    """The weights of each call, (H, Q, K) float32."""
    count = sum(int(np.prod(call.shape)) for call in calls)
    reasons = []
    if count > MOST:
        fix = "record fewer layers (layers=), or a shorter text"
        given, expected = f"{count:,} weights", f"at most {MOST:,}, because the viewer writes all of them into a page"
        reasons.append(Reason("too many weights", given, expected, fix))
    if partial := [call for call in calls if call.aligned and call.shape[1] != call.shape[2]]:
        given = f"{partial[0].name}: {partial[0].shape[1]} rows over {partial[0].shape[2]} keys"
        expected, fix = "a row for every token", "record the whole text, without a cache"
        reasons.append(Reason("rows are missing", given, expected, fix))
    if len({call.shape for call in calls}) > 1:
        given = ", ".join(sorted({str(call.shape) for call in calls}))
        fix = "record one kind of layer (layers=)"
        reasons.append(Reason("layers of different sizes", given, "the same (H, Q, K)", fix))
    if reasons:
        raise Refused(where, reasons)
    return [call.weights().astype(np.float32) for call in calls]
