"""Asked: calls that were told something else than what the layer declares."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from ...lens import Run
from ...lens.call import Call
from ...scores import softcap as softcapped
from ..finding import Finding
from .declared import declared, layer_of, scaled_before
from .suspects import capped
from .told import rows_to_read
from .verdict import fits
from .words import place, shape_of

__all__ = ["ASKED"]

CLOSE = 1e-3  # scales this near each other are the same: configurations round theirs, and norms are taken in 16 bit
ROUGH = 0.02  # norms of q before and after tell its scale this well, whatever the dtype
CELLS = 1 << 22  # of a mask that is read


def scale(run: Run, number: int, call: Call, module) -> Finding | bool:
    """The scale that q·k really gets, against the declared one; without a declaration, against the forms that mistakes take."""
    if call.given is not None or call.q is None:
        return False
    known, before = declared(call, module).scale, scaled_before(call, module)
    if known is None:
        return declared(call, module).configured or _undeclared(run, number, call, before)
    plain = before is not None and math.isclose(before, 1, rel_tol=ROUGH)
    if math.isclose(call.scale, known, rel_tol=CLOSE):
        if plain or before is None or not math.isclose(before, known, rel_tol=ROUGH):
            return _odd(run, number, call, module)
        acts = call.scale * before
    elif not plain and (before is not None or math.isclose(call.scale, 1, rel_tol=CLOSE)):
        # q was scaled before, or may have been.
        return before is not None and math.isclose(call.scale * before, known, rel_tol=ROUGH)
    else:
        acts = call.scale
    D = call.q.shape[2]
    return Finding(
        "scale", "fault", place(run, number),
        f"scores are {acts:.6g} · q·k, and the layer declares {known:.6g}{_root(known, D)}: {acts / known:.4g} times it "
        f"(threshold: {CLOSE:g} of it)",
        _why(acts, known), f"multiply q·k by {known:.6g}, once", number,
        numbers={"scale": acts, "declared": known, "factor": acts / known},
    )  # fmt: skip


def _odd(run: Run, number: int, call: Call, module) -> Finding | bool:
    """A scale as it is declared, which is a usual mistake all the same, or not that of the other layers like this one."""
    assert call.q is not None
    D, kind = call.q.shape[2], shape_of(call.name)
    usual, own = D**-0.5, getattr(layer_of(call, module), "config", None)
    others = [
        other.scale for other in run.calls if other.q is not None and other.q.shape[2] == D and shape_of(other.name) == kind
    ]
    alone = sum(math.isclose(other, usual, rel_tol=CLOSE) for other in others) * 2 >= len(others) > 1
    mistakes = {2 * usual: "the scale is doubled", usual / 2: "the scale is halved", math.sqrt(D): "the scale is inverted"}
    cause = next((words for value, words in mistakes.items() if math.isclose(call.scale, value, rel_tol=CLOSE)), None)
    known = [value for name, value in ({} if own is None else vars(own)).items() if isinstance(value, int | float)
             and any(word in name for word in ("scal", "multiplier", "mup"))]  # fmt: skip
    configured = any(
        value > 0 and math.isclose(call.scale, number, rel_tol=CLOSE) for value in known for number in (value, value**-0.5)
    )
    if math.isclose(call.scale, usual, rel_tol=CLOSE) or D == 1 or configured or not (cause or alone):
        return True
    return Finding(
        "scale", "warning", place(run, number),
        f"scores are {call.scale:.6g} · q·k, as the layer declares; 1/√{D} is {usual:.6g}"
        + (", which the other layers like it use" if alone else "") + f" (threshold: {CLOSE:g} of it)",
        cause or "the scale of this layer alone was changed", f"set the layer's scale to {usual:.6g}, or name another in its configuration",
        number, numbers={"scale": call.scale, "usual": usual, "factor": call.scale / usual},
    )  # fmt: skip


def _undeclared(run: Run, number: int, call: Call, before: float | None) -> Finding | bool:
    """Nothing declares a scale: 1/√D is the usual one, and the forms that mistakes take are worth a look."""
    assert call.q is not None
    acts = call.scale * (1.0 if before is None or math.isclose(before, 1, rel_tol=ROUGH) else before)
    D = call.q.shape[2]
    usual = D**-0.5
    forms = {1.0: "the scale was left out", math.sqrt(D): "the scale is inverted", 1 / D: "the root of D was forgotten"}
    cause = next((words for value, words in forms.items() if math.isclose(acts, value, rel_tol=CLOSE)), None)
    if cause is None or D < 4 or math.isclose(acts, usual, rel_tol=CLOSE):
        return True
    share = float((call.rows["maximum"][call.rows["attended"] > 1] > 0.99).mean()) if "maximum" in call.rows and \
        (call.rows["attended"] > 1).any() else 0.0  # fmt: skip
    return Finding(
        "scale", "warning" if acts > usual and share > 0.5 else "note", place(run, number),
        f"scores are {acts:.6g} · q·k, and nothing declares a scale; 1/√{D} = {usual:.6g} is the usual one. "
        f"{share:.0%} of the rows put more than 0.99 on one key (a warning above 50 %)",
        cause, f"multiply q·k by 1/√{D}, or say why not, as a `scaling` of the layer", number,
        numbers={"scale": acts, "usual": usual, "saturated": share},
    )  # fmt: skip


def _root(value: float, D: int) -> str:
    return f" = 1/√{D}" if math.isclose(value, D**-0.5, rel_tol=CLOSE) else ""


def _why(acts: float, declared: float) -> str:
    known = {1 / declared: "the scale was left out", declared: "the scale is applied twice", 2.0: "the scale is doubled",
             0.5: "the scale is halved", declared**-2: "the scale is inverted"}  # fmt: skip
    return next((words for factor, words in known.items() if math.isclose(acts / declared, factor, rel_tol=0.05)),
                "another scale is passed to the call than the layer's own")  # fmt: skip


def mask(run: Run, number: int, call: Call, module) -> Finding | bool:
    """What head 0 may attend, against a causality and a window that the layer declares."""
    known = declared(call, module)
    _, Q, K = call.shape
    added = _added(run, number, call)
    if added is not None or not known.causal or 0 in (Q, K):
        return False if added is None else added
    rows = np.arange(max(0, Q - max(2, CELLS // K)), Q)
    seen = (call.allowed if call.given is None else call.weights)(rows, None, [0])[0] > 0
    ahead = np.arange(K)[None, :] - (call.start + rows)[:, None]  # key − query
    shown = seen.any(0)  # what no row may attend is padding, or out of everybody's window
    bands: list[tuple[str, str, np.ndarray]] = [
        ("a row sees the key after its own", "the diagonal is off by one", ahead <= 1),
        ("a row does not see its own key", "the diagonal is off by one", ahead < 0),
        ("every key is seen, later ones too", "the mask is dropped, or was never made", np.ones_like(seen)),
    ]
    right = ahead <= 0
    if known.window is not None:
        w = known.window
        right = right & (-ahead < w)
        bands += [(f"a row sees {w + 1} keys", "the window is off by one", (ahead <= 0) & (-ahead <= w)),
                  (f"a row sees {w - 1} keys", "the window is off by one", (ahead <= 0) & (-ahead < w - 1)),
                  ("every earlier key is seen", "the window was left out", ahead <= 0)]  # fmt: skip
    if (seen == (right & shown)).all():
        return True
    found = next(((does, cause) for does, cause, band in bands if (seen == (band & shown)).all()), None)
    if found is None:
        return True  # prefixes, pictures and packed documents see more or less, and rightly so
    does, cause = found
    off = seen != (right & shown)
    row = int(rows[np.argwhere(off)[0, 0]])
    wanted = "causal" + (f" with a window of {known.window} keys" if known.window is not None else "")
    return Finding(
        "mask", "fault", place(run, number, (), row),
        f"the layer declares {wanted}, and the mask differs in {int(off.sum())} of {off.size} pairs (threshold: 0): {does}",
        cause, "a row attends key ≤ query" + (f" and query − key < {known.window}" if known.window is not None else ""),
        number, None, row, {"pairs": int(off.sum()), "of": int(off.size)},
    )  # fmt: skip


def _added(run: Run, number: int, call: Call) -> Finding | None:
    """Truth values that were added to the scores."""
    if call.given is not None or call.mask is not None or call.score is None or capped(call.score):
        return None
    rows = rows_to_read(call)
    added = call.scores(rows) - call.logits(rows)
    near = np.round(added)
    if not ((np.abs(added - near) < CLOSE) & ((near == 0) | (near == 1))).all() or not 0 < near.mean() < 1:
        return None
    return Finding(
        "mask", "fault", place(run, number),
        f"what is added to the scores is 0 or 1 in each of {added.size} pairs, and no key is hidden (threshold: {CLOSE:g})",
        "a mask of booleans is added to the scores", "turn it into 0 and −infinity, or use where(mask, scores, −infinity)", number,
        numbers={"share": float(near.mean())},
    )  # fmt: skip


def alignment(run: Run, number: int, call: Call, module) -> Finding | bool:
    """Fewer rows than keys, and a causal mask that begins at the top left though the keys before the rows are there."""
    _, Q, K = call.shape
    if call.k is None or not 0 < Q < K or Q * K > CELLS or declared(call, module).causal is False:
        return False
    seen = call.allowed(None, None, [0])[0]
    if not (seen == (np.arange(K)[None, :] <= np.arange(Q)[:, None])).all() or not np.any(np.asarray(call.k)[:, Q:]):
        return True  # a fixed cache that is being filled holds zeros there
    return Finding(
        "alignment", "fault", place(run, number),
        f"{Q} rows over {K} keys, and row i sees keys 0 to i: the last {K - Q} keys, which are not empty, are seen by nobody "
        "(threshold: 0)", "is_causal, or a mask from tril, begins at the top left, and the rows are the last ones",
        f"row 0 stands at position {K - Q}: shift the diagonal by that", number, numbers={"rows": Q, "keys": K},
    )  # fmt: skip


def groups(run: Run, number: int, call: Call, module) -> Finding | bool:
    """Keys that were repeated before the call: each in place, or all as one block."""
    G, H = declared(call, module).groups, call.shape[0]
    if G is None or not 1 < G < H or H % G or call.k is None or call.groups != H:
        return False
    if getattr(layer_of(call, module), "num_key_value_groups", H // G) != H // G:
        return False  # heads that are repeated for another reason, such as one for each expert
    k = np.asarray(call.k)

    def repeats(heads: np.ndarray) -> bool:
        return bool((k == k[heads]).all())

    tiled, inplace = repeats(np.arange(H) % G), repeats(np.arange(H) // (H // G) * (H // G))
    if not tiled or inplace:
        return inplace
    return Finding(
        "groups", "fault", place(run, number),
        f"the keys of heads h and h + {G} are equal bit by bit, those of heads 0 and 1 are not, and the layer declares {G} key heads "
        f"for {H} query heads", "keys and values are repeated as blocks (repeat, tile, expand) where each should be repeated in place",
        "use repeat_interleave: head h reads key head h // (H / G)", number, numbers={"groups": G, "heads": H},
    )  # fmt: skip


def softcap(run: Run, number: int, call: Call, module) -> Finding | bool:
    """A declared softcap that the scores do not show."""
    cap = declared(call, module).softcap
    if cap is None or call.given is not None or (call.score is not None and not capped(call.score)):
        return False
    if call.score is not None:
        return True
    return _dropped(run, number, call, replace(call, score=softcapped(cap)), "softcap", f"a softcap of {cap:g}",
                    f"scores become {cap:g} · tanh(score / {cap:g}) before the mask")  # fmt: skip


def sinks(run: Run, number: int, call: Call, module) -> Finding | bool:
    """Declared sinks that the softmax does not show."""
    known = declared(call, module).sinks
    if known is None or isinstance(known, bool) or np.size(known) != call.shape[0] or call.given is not None:
        return False
    if call.sinks is not None:
        return True
    return _dropped(run, number, call, replace(call, sinks=np.reshape(known, (-1, 1))), "sinks", "sinks",
                    "the sinks belong in the denominator of the softmax")  # fmt: skip


def _dropped(run: Run, number: int, call: Call, right: Call, name: str, what: str, mend: str) -> Finding | bool:
    """A fault only where it makes a difference: where the output can be compared, it must not be the right one as well."""
    if fits(right):
        return True
    later = name == "sinks" and "written out" in str(call.notes.get("kind"))
    return Finding(
        name, "note" if later else "fault", place(run, number),
        f"the layer declares {what}, the call was told none" + (", and its output is that without" if fits(call) else ""),
        "the model brings them in after the sum over the values, or not at all" if later else
        "the argument does not reach the implementation", mend, number,
    )  # fmt: skip


ASKED: dict[str, Callable[[Run, int, Call, Any], Finding | bool]] = {
    "scale": scale, "mask": mask, "alignment": alignment, "groups": groups, "softcap": softcap, "sinks": sinks,
}  # fmt: skip
