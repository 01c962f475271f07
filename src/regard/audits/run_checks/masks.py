"""The checks mask and alignment: which keys the rows attend to, against the causality and window of the layer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ...common.text.units import counted
from ...language.added_masks import hides
from ...language.expr import Var, walk
from ...laws.mistakes.scores import has_softcap
from ...lens import Call
from ..finding import SEVERITIES, Finding
from .audited_run import AuditedCall
from .observed_call import rows_to_read

CELLS = 1 << 22  # of a mask that is read
CLOSE = 1e-3  # tolerance within which an added score counts as 0 or 1


def mask(audited: AuditedCall) -> Finding | bool:
    """Which keys the heads attend to, against the causality and the window that the layer declares."""
    call, known = audited.call, audited.declared
    _, Q, K = call.shape
    added = _added_booleans(audited)
    if added is not None or not known.causal or 0 in (Q, K):
        return False if added is None else added
    by_head = call.mask is not None and any(isinstance(node, Var) and node.name == "head" for node in walk(call.mask))
    apart = by_head or call.given is not None
    heads = range(call.shape[0] if apart else 1)
    rows = np.arange(max(0, Q - max(2, CELLS // (K * len(heads)))), Q)
    answers = [_compared(audited, (head,) if apart else (), rows, _visible(call, rows, head)) for head in heads]
    findings = [answer for answer in answers if isinstance(answer, Finding)]
    return min(findings, key=lambda each: SEVERITIES.index(each.severity)) if findings else all(answers)


def _visible(call: Call, rows: np.ndarray, head: int) -> np.ndarray:
    """(rows, K): which keys a head attends to. Later keys also count as masked if large negative numbers are added to
    their scores and leave all of them a weight of 0.
    """
    if call.given is not None:
        return np.asarray(call.weights(rows, None, [head])[0] != 0)
    visible = np.asarray(call.allowed(rows, None, [head])[0])
    if call.score is None or call.q is None:
        return visible
    later = visible & (np.arange(call.shape[2])[None, :] > (call.start + rows)[:, None])
    added = replace(call, q=np.zeros_like(call.q)).scores(rows, None, [head])[0]
    weights = call.weights(rows, None, [head])[0]
    masked = hides(added[later], 0) & (weights[later].astype(np.float32) == 0)
    return visible & ~later if masked.all() else visible


def _compared(audited: AuditedCall, heads: tuple[int, ...], rows: np.ndarray, visible: np.ndarray) -> Finding | bool:
    """Compares the keys that these rows attend to with the declared causal mask and window: a finding for a known
    mistake or for later keys; otherwise whether the mask is exactly the declared one.
    """
    call, window = audited.call, audited.declared.window
    ahead = np.arange(call.shape[2])[None, :] - (call.start + rows)[:, None]  # key − query
    used = visible.any(0)  # keys masked for every row are padding, or outside the windows of all rows
    known: list[tuple[str, str, np.ndarray]] = [
        ("each row also attends to the next key", "the diagonal is off by one", ahead <= 1),
        ("no row attends to its own key", "the diagonal is off by one", ahead < 0),
        (
            "no row except the first attends to its own key",
            "the diagonal is off by one",
            (ahead < 0) | ((ahead == 0) & (rows == rows[0])[:, None]),
        ),
        (
            "each row attends to every key, including later ones",
            "the mask is dropped, or was never created",
            np.ones_like(visible),
        ),
    ]
    right = ahead <= 0
    if window is not None:
        right = right & (-ahead < window)
        off = "the window is off by one"
        known += [
            (f"each row attends to {window + 1} keys", off, (ahead <= 0) & (-ahead <= window)),
            (f"each row attends to {window - 1} keys", off, (ahead <= 0) & (-ahead < window - 1)),
            ("each row attends to every earlier key", "the sliding window is missing", ahead <= 0),
        ]
    if (visible == (right & used)).all():
        return True
    match = next(((words, cause) for words, cause, band in known if (visible == (band & used)).all()), None)
    expected = "causal" + (f" with a window of {counted(window, 'key')}" if window is not None else "")
    if match is None:  # prefixes, images and packed documents may rightly have other masks
        future = visible & (ahead > 0)
        row = int(rows[np.argwhere(future)[0, 0]]) if future.any() else 0
        return bool(future.any()) and audited.finding(
            "mask",
            "note",
            f"the call is declared {expected}, but in {int(future.sum())} of {future.size} (row, key) pairs a "
            f"row attends to a later key, up to {int(ahead[future].max())} ahead (threshold: 0)",
            "a prefix or an image with bidirectional attention, or a wrong mask",
            "unless later keys are intended, restrict each row to key ≤ query",
            heads=heads,
            row=row,
            numbers={"pairs": int(future.sum()), "of": int(future.size)},
        )
    words, cause = match
    off = visible != (right & used)
    row = int(rows[np.argwhere(off)[0, 0]])
    return audited.finding(
        "mask",
        "fault",
        f"the call is declared {expected}, but the mask differs in {int(off.sum())} of {off.size} (row, key) pairs "
        f"(threshold: 0): {words}",
        cause,
        "restrict each row to key ≤ query" + (f" and query − key < {window}" if window is not None else ""),
        heads=heads,
        row=row,
        numbers={"pairs": int(off.sum()), "of": int(off.size)},
    )


def _added_booleans(audited: AuditedCall) -> Finding | None:
    """A boolean mask that is added to the scores."""
    call = audited.call
    if call.given is not None or call.mask is not None or call.score is None or has_softcap(call.score):
        return None
    rows = rows_to_read(call)
    added = call.scores(rows) - call.logits(rows)
    near = np.round(added)
    if not ((np.abs(added - near) < CLOSE) & ((near == 0) | (near == 1))).all() or not 0 < near.mean() < 1:
        return None
    return audited.finding(
        "mask",
        "fault",
        f"the number added to the score is 0 or 1 (within {CLOSE:g}) for each of {added.size} (row, key) pairs, "
        "and no key is masked",
        "a boolean mask is added to the scores",
        "convert it to 0 and −infinity, or use where(mask, scores, −infinity)",
        numbers={"share": float(near.mean())},
    )


def alignment(audited: AuditedCall) -> Finding | bool:
    """Fewer rows than keys, and a causal mask aligned top left although the rows are the last positions."""
    call = audited.call
    _, Q, K = call.shape
    if call.k is None or not 0 < Q < K or Q * K > CELLS or audited.declared.causal is False:
        return False
    visible = call.allowed(None, None, [0])[0]
    if not (visible == (np.arange(K)[None, :] <= np.arange(Q)[:, None])).all() or not np.any(np.asarray(call.k)[:, Q:]):
        return True  # the unused part of a static cache contains zeros
    return audited.finding(
        "alignment",
        "fault",
        f"{Q} rows over {K} keys, and row i attends to keys 0 to i: no row attends to the last {K - Q} keys, "
        "which are not empty (threshold: 0)",
        "the causal mask (is_causal, or tril) is aligned top left, but the rows are the last positions",
        f"row 0 has position {K - Q}: shift the diagonal by that",
        numbers={"rows": Q, "keys": K},
    )
