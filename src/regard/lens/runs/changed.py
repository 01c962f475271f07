"""A run with changed rules: every call is computed again from its recorded q, k and v."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ...api.attention import attention
from ...common.errors import Reason, Refused
from ...engines import choice
from ...language.callables import as_mask
from ...language.expr import score as plain_score
from .axis import Axis
from .call import Call, rules_of
from .detectors import of_tokens
from .figures import moved, with_figures

RECORDED = "recorded"  # the mask of the model
COMPARED = ("compared", "difference", "empty")  # notes that compare the call with the model's output


def changed(
    calls: Sequence[Call],
    axes: Mapping[str, Axis],
    temperature: float,
    scale: float | None,
    mask: Any,
    only: Collection[int] | None,
) -> tuple[tuple[Call, ...], str]:
    """The calls and what was changed, in words; see `Run.changed`."""
    wanted = range(len(calls)) if only is None else only
    if reasons := list(_faults(calls, temperature, scale, mask, wanted)):
        raise Refused("Run.changed", reasons)
    rule = None if isinstance(mask, str) else as_mask(mask)
    words = [f"temperature {temperature:g}"] if temperature != 1 else []
    words += [] if scale is None else [f"scale {scale:g}"]
    words += [] if isinstance(mask, str) else [f"mask {'none' if rule is None else rule}"]
    said = ", ".join(words)
    if not said:
        return tuple(calls), said

    def ruled(call: Call) -> Call:
        """The call with the new rules, before anything is computed from them."""
        score = call.score
        if temperature != 1:
            score = (plain_score if score is None else score) * (1 / temperature)
        return dataclasses.replace(
            call,
            score=score,
            scale=call.scale if scale is None else float(scale),
            mask=call.mask if isinstance(mask, str) else rule,
            out=None,
            # The model has not computed the output of the changed rules.
            projections=None if call.projections is None else call.projections.without_output(OTHER_RULES),
            notes={**{name: value for name, value in call.notes.items() if name not in COMPARED}, "changed": said},
        )

    return tuple(_computed(ruled(call), axes) if at in wanted else call for at, call in enumerate(calls)), said


def _computed(call: Call, axes: Mapping[str, Axis]) -> Call:
    """The call with what follows from its rules: figures, and the output."""
    axis = axes[call.keys]
    special = np.array(axis.special)
    sets = of_tokens(axis, {}) if call.queries == call.keys else {}
    new = with_figures(dataclasses.replace(call, v=None), special, sets)
    if call.v is None:
        return new
    new = dataclasses.replace(new, v=call.v, out=_output(new, call.v))
    if call.lengths is None:
        return new
    return dataclasses.replace(new, rows={**new.rows, **moved(new, call.lengths, special)})


OTHER_RULES = "the model has not computed the output of changed rules, with which the product could be compared"


def _output(call: Call, v: np.ndarray) -> np.ndarray:
    """Σ p v of every row and head (H, Q, E)."""
    assert call.q is not None and call.k is not None
    H, Q, K = call.shape
    k, v = (np.repeat(part, H // len(part), 0) for part in (call.k, v))
    return attention(call.q, k, v, query_start=call.start, engine=choice.of_one_call(H * Q * K), **rules_of(call))


def _faults(
    calls: Sequence[Call], temperature: Any, scale: Any, mask: Any, wanted: Collection[int]
) -> Iterator[Reason]:
    def number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

    if not number(temperature) or temperature <= 0:
        yield Reason(
            "temperature is not a positive number",
            f"temperature={temperature!r}",
            "a number above 0; 1 changes nothing",
            "pass, for example, temperature=0.5",
        )
    if scale is not None and not number(scale):
        expected = "a finite number, or None for the recorded one"
        yield Reason("scale is not a number", f"scale={scale!r}", expected, "pass, for example, scale=0.125")
    if isinstance(mask, str) and mask != RECORDED:
        yield Reason(
            "unknown mask",
            f"mask={mask!r}"[:60],
            "a mask rule, None for no mask, or 'recorded'",
            "pass, for example, mask=regard.causal()",
        )
    known = range(len(calls))
    if wrong := [at for at in wanted if at not in known]:
        fix = "leave calls= out for all calls"
        yield Reason("no such call", f"calls={wrong[:5]}", f"0 to {len(calls) - 1}", fix)
    if bare := [calls[at].name for at in wanted if at in known and calls[at].q is None]:
        yield Reason(
            "calls of which only the weights are known",
            ", ".join(bare[:3]),
            "calls with q and k",
            "record the model, or pass q and k instead of weights",
        )
