"""Arguments: groups, softcap and sinks that a layer declares, against what its call was told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...language.scores import softcap as softcapped
from ...lens import Call, Run
from ..finding import Finding
from .diagnosis import fits
from .known_mistakes import capped
from .layer_settings import declared, layer_of
from .wording import place, shape_of

__all__ = ["bias", "groups", "sinks", "softcap"]


def groups(run: Run, number: int, call: Call, module) -> Finding | bool:
    """Keys and values that were repeated before the call: each in place, or all as one block."""
    G, H = declared(call, module).groups, call.shape[0]
    if G is None or not 1 < G < H or H % G or call.k is None or call.groups != H:
        return False
    if getattr(layer_of(call, module), "num_key_value_groups", 0 if module is None else H // G) != H // G:
        return False  # heads may be repeated for another reason, such as one for each expert
    at, kinds = np.arange(H), {}
    for name, part in (("keys", call.k), ("values", call.v)):
        if part is not None and len(part) == H:
            tiled, inplace = _repeats(part, at % G), _repeats(part, at // (H // G) * (H // G))
            kinds[name] = "in place" if inplace else "tiled" if tiled else "neither"
    wrong = [name for name, kind in kinds.items() if kind == "tiled"]
    if not wrong:
        return "in place" in kinds.values()
    which = " and ".join(wrong)
    return Finding(
        check="groups",
        severity="fault",
        where=place(run, number),
        measured=f"the {which} of heads h and h + {G} are equal bit by bit, those of heads 0 and 1 are not, "
        f"and the layer declares {G} key heads "
        f"for {H} query heads",
        cause=f"{which} are repeated as blocks (repeat, tile, expand) where each should be repeated in place",
        mend=f"use repeat_interleave for {which}: head h reads key head h // (H / G)",
        call=number,
        numbers={"groups": G, "heads": H, "arrays": wrong},
    )


def _repeats(part, heads: np.ndarray) -> bool:
    """Whether every head holds bit by bit what the named one does."""
    return all(np.array_equal(part[head], part[other]) for head, other in enumerate(heads) if head != other)


def softcap(run: Run, number: int, call: Call, module) -> Finding | bool:
    """A declared softcap that the scores do not show."""
    cap = declared(call, module).softcap
    if cap is None or call.given is not None or (call.score is not None and not capped(call.score)):
        return False
    if call.score is not None:
        return True
    return _dropped(
        run,
        number,
        call,
        replace(call, score=softcapped(cap)),
        name="softcap",
        what=f"a softcap of {cap:g}",
        mend=f"scores become {cap:g} · tanh(score / {cap:g}) before the mask",
    )


def sinks(run: Run, number: int, call: Call, module) -> Finding | bool:
    """Declared sinks that the softmax does not show."""
    known = declared(call, module).sinks
    if known is None or isinstance(known, bool) or np.size(known) != call.shape[0] or call.given is not None:
        return False
    if call.sinks is not None:
        return True
    return _dropped(
        run,
        number,
        call,
        replace(call, sinks=np.reshape(known, (-1, 1))),
        name="sinks",
        what="sinks",
        mend="the sinks belong in the denominator of the softmax",
    )


def bias(run: Run, number: int, call: Call, module) -> Finding | bool:
    """Something added to the scores of the other layers like this one, and not to its own."""
    others = [
        other
        for other in run.calls
        if other is not call and shape_of(other.name) == shape_of(call.name) and other.given is None
    ]
    biased = [other for other in others if other.score is not None and not capped(other.score)]
    if call.given is not None or not biased:
        return False
    if call.score is not None or len(biased) < len(others):
        return True
    return Finding(
        check="bias",
        severity="warning",
        where=place(run, number),
        measured=f"the scores of the {len(biased)} other calls of layers like this one have something added "
        "to them, such as a position bias, and "
        "those of this call have not (threshold: all of the others)",
        cause="the bias is not handed on to this layer",
        mend="pass the position bias of the first layer to all of them",
        call=number,
    )


def _dropped(run: Run, number: int, call: Call, right: Call, *, name: str, what: str, mend: str) -> Finding | bool:
    """A fault only where it makes a difference: where the output can be compared, it must not be the right one as
    well.
    """
    if fits(right):
        return True
    later = name == "sinks" and "written out" in str(call.notes.get("kind"))
    return Finding(
        check=name,
        severity="note" if later else "fault",
        where=place(run, number),
        measured=f"the layer declares {what}, the call was told none"
        + (", and its output is that without" if fits(call) else ""),
        cause="the model brings them in after the sum over the values, or not at all"
        if later
        else "the argument does not reach the implementation",
        mend=mend,
        call=number,
    )
