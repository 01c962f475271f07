"""The data blocks of a page: every weight of a short run; of a longer run q, k and lse, from which it computes them.

A block is a frame (a JSON header followed by arrays) as deflated base64. Stored whole, a head is two bytes per weight.
Otherwise q and k are multiples of a step that is as fine as the weights need, a mask is a bit per pair, and a score
rule is what it adds by distance. Calls with another score rule, or without q and k, are stored whole in any run.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..runs.call import Call
from ..runs.codes import FINE_ERROR, encode, packed
from ..runs.run import Run
from ..runs.tiles import coded, overview


def frame(header: dict, **parts: np.ndarray) -> bytes:
    """The header and the arrays as bytes: of all numbers of four bytes the first bytes, then the second ones, and so
    on, which compress better; then the other arrays.
    """
    described = [{"name": name, "dtype": part.dtype.name, "shape": part.shape} for name, part in parts.items()]
    begin = json.dumps(header | {"parts": described}, allow_nan=False).encode()
    begin += b" " * (-len(begin) % 4)
    wide = [np.zeros(0, np.uint32), *(part.ravel().view(np.uint32) for part in parts.values() if part.itemsize == 4)]
    pieces = [len(begin).to_bytes(4, "little"), begin, np.concatenate(wide).view(np.uint8).reshape(-1, 4).T.tobytes()]
    pieces += [part.tobytes() + bytes(-part.nbytes % 4) for part in parts.values() if part.itemsize != 4]
    return b"".join(pieces)


WHOLE = 2_500_000  # weights: up to this all are stored, with two bytes each before compression
MOST = 40_000_000  # bytes of a page for weights, or for q and k
LARGEST = 1 << 22  # the most weights of one head, which the browser holds as a whole
MEANS = 40_000_000  # weights: with more, a page computes no means over heads
PER_WEIGHT, PER_NUMBER = 2.6, 3.5  # bytes of a page for a stored weight, and for a number of q or k
THUMBNAIL = 44  # cells along each side of a thumbnail in the overview of heads
# Numbers of q, k, v, x and out that are stored for the step-by-step computation: of all calls, or of the one that is
# shown first.
EVERY, WALKED = 60_000, 250_000
ROUNDED = 1e-4  # a relative difference below the resolution of rounded vectors
TOLERATED = 5e-4  # the largest relative error of weights that are computed from q and k, if float32 can be so exact
BITS = 23  # of float32, after the first one
FEWEST = 10  # of q and k, below the largest of their numbers
HALF = 10  # of vectors of the step-by-step view: a relative error of at most 0.05 %
FIGURE = 16  # of figures along the axes
OF_ROWS = ("entropy", "spread", "special", "maximum", "attended", "moved")
OF_VALUES = ("moved", "lengths")
OF_VECTORS = (*OF_VALUES, "spread", "received")  # in a long text, many weights without a code add up


def _weights(run: Run) -> int:
    return sum(math.prod(call.shape) for call in run.calls)


def _bytes(call: Call, sure: bool) -> float:
    """The bytes of a call in a page; at least so many, if they are not to be sure, which takes time."""
    numbers = sum(part.size for part in (call.q, call.k) if part is not None)
    both = PER_NUMBER * numbers, PER_WEIGHT * math.prod(call.shape)
    return both[not computable(call)] if sure else min(both)


def fits(run: Run) -> bool:
    """Whether the run fits in one page; longer runs need the server."""
    largest = max(math.prod(call.shape[1:]) for call in run.calls)
    return largest <= LARGEST and (
        _weights(run) <= WHOLE or all(sum(_bytes(call, sure) for call in run.calls) <= MOST for sure in (False, True))
    )


def means(run: Run) -> bool:
    """Whether a page shows means over heads."""
    return _weights(run) <= MEANS


def computable(call: Call) -> bool:
    """Whether a page can compute the weights from q, k and lse."""
    parts = call.q, call.k, call.lse[~np.isneginf(call.lse)]
    return all(part is not None and np.isfinite(part).all() for part in parts) and added(call) is not None


def added(call: Call) -> np.ndarray | None:
    """What the score rule adds to each score, by head and query − key + K − 1; of no rule (H, 0). None if it adds
    different numbers at one distance.
    """
    H, Q, K = call.shape
    found = np.zeros((H, 0 if call.score is None else Q + K - 1))
    for head in range(H if found.size else 0):
        bias = (call.scores(heads=head) - call.logits(heads=head))[0]
        found[head] = *bias[0, ::-1], *bias[1:, 0]
        if not np.allclose(found[head][np.arange(Q)[:, None] + np.arange(K)[::-1]], bias, rtol=0, atol=1e-6):
            return None
    return found


def blocks(number: int, run: Run, first: int) -> Iterator[tuple[str, str]]:
    """(id, text) of every block of run `number` of the page. first: the call that is shown first."""
    masks: dict[bytes, str] = {}
    for at, (call, names) in enumerate(zip(run.calls, walked(run, first), strict=True)):
        header: dict[str, Any] = {}
        vectors: dict[str, np.ndarray] = {}
        if _weights(run) <= WHOLE or not computable(call):
            codes = (encode(call.weights(heads=h)[0], call.allowed(heads=h)[0]) for h in range(call.shape[0]))
            coarse, fine = (np.stack(part) for part in zip(*codes, strict=True))
            yield f"heads-{number}-{at}", packed(frame({"exact": "exact"}, coarse=coarse, fine=fine))
        else:
            header, vectors = _vectors(call)
            if call.mask is not None:
                allowed = call.allowed()
                bits = [np.packbits(each).tobytes() for each in (allowed[:1] if allowed.strides[0] == 0 else allowed)]
                for one in bits:
                    if one not in masks:
                        masks[one] = f"mask-{number}-{len(masks)}"
                        yield masks[one], packed(one)
                header["masks"] = [masks[one] for one in bits]
        if vectors or max(call.shape[1:]) > THUMBNAIL:  # otherwise a thumbnail has the codes of the head itself
            yield f"overview-{number}-{at}", packed(frame({}, codes=coded(call, overview(call, THUMBNAIL))))
        tracks = along_axes(call)
        if computable(call) and (vectors or call.sinks is None):  # the page computes the others from the weights
            tracks = {name: part for name, part in tracks.items() if name in (OF_VECTORS if vectors else OF_VALUES)}
        yield (
            f"tracks-{number}-{at}",
            packed(frame({}, **{name: _short(part, FIGURE) for name, part in tracks.items()})),
        )
        if names or vectors:
            yield f"walk-{number}-{at}", packed(_walk(call, names, header, vectors))


def _vectors(call: Call) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """q and k as multiples of a power of two, no finer than the weights need, and the largest relative error of weights
    that follow from them, found over all pairs: a weight changes by as much as its score,
    q·k − q'·k' = q·(k − k') + (q − q')·k'.
    """
    exact = {name: np.asarray(getattr(call, name), np.float64) for name in ("q", "k")}
    bias = np.asarray(added(call))
    below = np.abs(np.nan_to_num(np.append(call.lse, bias), neginf=0)).max() * 2.0**-23  # of both in float32
    share = call.shape[0] // call.groups
    for bits in range(FEWEST, BITS + 1):
        steps = {name: float(2.0 ** (np.frexp(np.abs(part).max())[1] - bits)) for name, part in exact.items()}
        whole = {name: np.rint(part / steps[name]) for name, part in exact.items()}
        found = {name: part * steps[name] for name, part in whole.items()}
        left = np.concatenate([exact["q"], exact["q"] - found["q"]], -1).astype(np.float32)
        right = np.concatenate([exact["k"] - found["k"], found["k"]], -1).astype(np.float32)
        most = max(np.abs(one @ right[head // share].T).max() for head, one in enumerate(left))
        error = abs(call.scale) * float(most) + below + FINE_ERROR
        if error <= TOLERATED:
            break
    known = f"with a relative error of at most 0.05 %, q and k to {max(steps.values()) / 2:.1g}"
    header = {"error": f"{math.ceil(1e4 * error) / 100:g} %", "steps": steps, "exact": known}
    signs = {name: np.where(part < 0, -2 * part - 1, 2 * part).astype(np.int32) for name, part in whole.items()}
    return header, signs | {"bias": bias.astype(np.float32)}


def _short(values: np.ndarray, bits: int) -> np.ndarray:
    """Numbers as float32 with so many bits after the first one; the other bits are 0, and take no room."""
    numbers = np.asarray(values, np.float32)
    rest = np.uint32((1 << (BITS - bits)) - 1)
    rounded = (numbers.view(np.uint32) + (rest + 1) // 2) & ~rest
    return np.where(np.isfinite(numbers), rounded.view(np.float32), numbers)


def along_axes(call: Call) -> dict[str, np.ndarray]:
    """The available figures along the axes of the maps of a call: of rows, (H, Q), and of keys, (H, K)."""
    found = {name: call.rows[name] for name in OF_ROWS if name in call.rows}
    if call.received is not None:
        found |= {"received": call.received, "readers": call.readers}
        found |= {} if call.lengths is None else {"lengths": call.lengths}
    return found


def walked(run: Run, first: int) -> list[tuple[str, ...]]:
    """The arrays of each call for the step-by-step view: of a small run those of all calls, otherwise those of the call
    that is shown first; as many as fit, the most important first.
    """
    names = ("q", "k", "v", "out", "x")

    def sizes(calls: Sequence[Call]) -> np.ndarray:
        """Of the first arrays together; that of what was not recorded is 1."""
        return np.cumsum([sum(np.size(getattr(call, name)) for call in calls) for name in names])

    every = sizes(run.calls)[-1] <= EVERY
    count = int((sizes(run.calls if every else [run.calls[first]]) <= WALKED).sum())
    fitting = names[:count] if count > 1 else ()
    return [fitting if every or at == first else () for at in range(len(run.calls))]


def _walk(call: Call, names: tuple[str, ...], header: dict[str, Any], vectors: dict[str, np.ndarray]) -> bytes:
    """The inputs of the step-by-step computation, rounded except for `vectors`; the page computes the steps.

    The model's output is left out if it was recorded to be equal to Σ p v in all rows, which the page computes.
    """
    notes = call.notes
    found_so = notes.get("compared") == "all rows" and notes.get("empty") in (None, "0")
    near = isinstance(difference := notes.get("difference"), float) and difference <= ROUNDED
    same = call.v is not None and "v" in names and found_so and near
    found = {"lse": np.asarray(call.lse, np.float32)} | vectors
    for name in names:
        part = getattr(call, name)
        if part is not None and name not in found and not (same and name == "out"):
            found[name] = _short(part, HALF)
    if call.sinks is not None:
        found["sinks"] = np.asarray(call.sinks, np.float32)
    return frame({"exact": "with a relative error of at most 0.05 %", "same": same} | header, **found)
