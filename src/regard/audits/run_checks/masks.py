"""Masks: what rows were really allowed to attend, against a causality and a window that the layer declares."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...language.added_masks import hides
from ...language.expr import Var, walk
from ...lens import Call, Run
from ..finding import SEVERITIES, Finding
from .expected_output import rows_to_read
from .known_mistakes import capped
from .layer_settings import declared
from .wording import place

__all__ = ["alignment", "mask"]

CELLS = 1 << 22  # of a mask that is read
CLOSE = 1e-3  # what is added to a score is 0 or 1 within this


def mask(run: Run, number: int, call: Call, module) -> Finding | bool:
    """What the heads may attend, against a causality and a window that the layer declares."""
    known = declared(call, module)
    _, Q, K = call.shape
    added = _added(run, number, call)
    if added is not None or not known.causal or 0 in (Q, K):
        return False if added is None else added
    by_head = call.mask is not None and any(isinstance(node, Var) and node.name == "head" for node in walk(call.mask))
    apart = by_head or call.given is not None
    heads = range(call.shape[0] if apart else 1)
    rows = np.arange(max(0, Q - max(2, CELLS // (K * len(heads)))), Q)
    answers = [
        _band(run, number, call, (head,) if apart else (), rows=rows, seen=_seen(call, rows, head), window=known.window)
        for head in heads
    ]
    found = [answer for answer in answers if isinstance(answer, Finding)]
    return min(found, key=lambda each: SEVERITIES.index(each.severity)) if found else all(answers)


def _seen(call: Call, rows: np.ndarray, head: int) -> np.ndarray:
    """(rows, K): which keys a head sees. Later keys are hidden, too, where what is added to the scores leaves none of
    them a weight.
    """
    if call.given is not None:
        return np.asarray(call.weights(rows, None, [head])[0] > 0)
    seen = np.asarray(call.allowed(rows, None, [head])[0])
    if call.score is None or call.q is None:
        return seen
    later = seen & (np.arange(call.shape[2])[None, :] > (call.start + rows)[:, None])
    added = replace(call, q=np.zeros_like(call.q)).scores(rows, None, [head])[0]
    weights = call.weights(rows, None, [head])[0]
    gone = hides(added[later], 0) & (weights[later].astype(np.float32) == 0)
    return seen & ~later if gone.all() else seen


def _band(
    run: Run, number: int, call: Call, heads: tuple[int, ...], *, rows: np.ndarray, seen: np.ndarray, window: int | None
) -> Finding | bool:
    """What these rows see, against the keys up to their own: whether it is that, and otherwise which mistake it is."""
    K = call.shape[2]
    ahead = np.arange(K)[None, :] - (call.start + rows)[:, None]  # key − query
    shown = seen.any(0)  # what no row may attend is padding, or out of everybody's window
    bands: list[tuple[str, str, np.ndarray]] = [
        ("a row sees the key after its own", "the diagonal is off by one", ahead <= 1),
        ("a row does not see its own key", "the diagonal is off by one", ahead < 0),
        (
            "a row does not see its own key, but for the first",
            "the diagonal is off by one",
            (ahead < 0) | ((ahead == 0) & (rows == rows[0])[:, None]),
        ),
        ("every key is seen, later ones too", "the mask is dropped, or was never made", np.ones_like(seen)),
    ]
    right = ahead <= 0
    if window is not None:
        w = window
        right = right & (-ahead < w)
        bands += [
            (f"a row sees {w + 1} keys", "the window is off by one", (ahead <= 0) & (-ahead <= w)),
            (f"a row sees {w - 1} keys", "the window is off by one", (ahead <= 0) & (-ahead < w - 1)),
            ("every earlier key is seen", "the window was left out", ahead <= 0),
        ]
    if (seen == (right & shown)).all():
        return True
    found = next(((does, cause) for does, cause, band in bands if (seen == (band & shown)).all()), None)
    wanted = "causal" + (f" with a window of {window} keys" if window is not None else "")
    if found is None:  # prefixes, pictures and packed documents see more or less, and rightly so
        future = seen & (ahead > 0)
        row = int(rows[np.argwhere(future)[0, 0]]) if future.any() else 0
        return bool(future.any()) and Finding(
            check="mask",
            severity="note",
            where=place(run, number, heads, row),
            measured=f"the call is declared {wanted}, and in {int(future.sum())} of {future.size} pairs a "
            "row sees a key after its own, up to "
            f"{int(ahead[future].max())} ahead (threshold: 0)",
            cause="a prefix, or a picture, that is seen as a whole; or a mask that is wrong",
            mend="if no token is meant to see later ones, a row attends key ≤ query",
            call=number,
            head=heads[0] if heads else None,
            row=row,
            numbers={"pairs": int(future.sum()), "of": int(future.size)},
        )
    does, cause = found
    off = seen != (right & shown)
    row = int(rows[np.argwhere(off)[0, 0]])
    return Finding(
        check="mask",
        severity="fault",
        where=place(run, number, heads, row),
        measured=(
            f"the call is declared {wanted}, and the mask differs in {int(off.sum())} of {off.size} "
            f"pairs (threshold: 0): {does}"
        ),
        cause=cause,
        mend="a row attends key ≤ query" + (f" and query − key < {window}" if window is not None else ""),
        call=number,
        head=heads[0] if heads else None,
        row=row,
        numbers={"pairs": int(off.sum()), "of": int(off.size)},
    )


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
        check="mask",
        severity="fault",
        where=place(run, number),
        measured=(
            f"what is added to the scores is 0 or 1 in each of {added.size} pairs, and no key is hidden "
            f"(threshold: {CLOSE:g})"
        ),
        cause="a mask of booleans is added to the scores",
        mend="turn it into 0 and −infinity, or use where(mask, scores, −infinity)",
        call=number,
        numbers={"share": float(near.mean())},
    )


def alignment(run: Run, number: int, call: Call, module) -> Finding | bool:
    """Fewer rows than keys, and a causal mask that begins at the top left though the keys before the rows are there."""
    _, Q, K = call.shape
    if call.k is None or not 0 < Q < K or Q * K > CELLS or declared(call, module).causal is False:
        return False
    seen = call.allowed(None, None, [0])[0]
    if not (seen == (np.arange(K)[None, :] <= np.arange(Q)[:, None])).all() or not np.any(np.asarray(call.k)[:, Q:]):
        return True  # a fixed cache that is being filled holds zeros there
    return Finding(
        check="alignment",
        severity="fault",
        where=place(run, number),
        measured=f"{Q} rows over {K} keys, and row i sees keys 0 to i: the last {K - Q} keys, which are not "
        "empty, are seen by nobody "
        "(threshold: 0)",
        cause="is_causal, or a mask from tril, begins at the top left, and the rows are the last ones",
        mend=f"row 0 stands at position {K - Q}: shift the diagonal by that",
        call=number,
        numbers={"rows": Q, "keys": K},
    )
