"""The numbers of a run as blocks inside a page: every weight where they are few, otherwise the strongest keys and a picture.

A block is a frame (a JSON header and arrays behind it) as deflated base64. Kept whole, a head is two bytes per weight; kept in
part, it is the strongest keys of each row to within 0.011 %, and the mean of the others in each block of a coarse map.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..measures import edges
from .call import Call
from .codes import encode, packed
from .frames import frame
from .run import Run

__all__ = ["PICTURE", "blocks", "fits", "kept"]

WHOLE = 2_500_000  # weights that are kept whole: two bytes each before packing
MOST = 60_000_000  # weights that are kept in part: a page of more would pass 8 MB by much
STRONGEST, REST = 16, 64  # keys per row, and blocks along a side of the coarse map
PICTURE = 44  # cells along the side of a picture in the atlas
WALKED = 400_000  # numbers of q, k, v, x and out that are kept for the walk
TRACKS = ("entropy", "spread", "special", "maximum", "attended", "received")


def _weights(run: Run) -> int:
    return sum(int(np.prod(call.shape)) for call in run.calls)


def fits(run: Run) -> bool:
    """Whether a page can hold the run by itself; a longer one is served."""
    return _weights(run) <= MOST and max(max(call.shape[1:]) for call in run.calls) < 65535


def kept(run: Run) -> str:
    """How a page keeps the run: "whole" or "part"."""
    return "whole" if _weights(run) <= WHOLE else "part"


def blocks(number: int, run: Run) -> Iterator[tuple[str, str]]:
    """(id, text) of every block of a run, which is the given number of the page."""
    whole = kept(run) == "whole"
    masks: dict[bytes, str] = {}
    for at, call in enumerate(run.calls):
        pictures = []
        for head in range(call.shape[0]):
            p = call.weights(heads=head)[0]
            allowed = call.allowed(heads=head)[0]
            pictures.append(_picture(p, allowed))
            if whole:
                coarse, fine = encode(p, allowed)
                made = frame({"exact": "exact"}, coarse=coarse, fine=fine)
            else:
                mask = None
                if not allowed.all():
                    bits = np.packbits(allowed).tobytes()
                    mask = masks.get(bits)
                    if mask is None:
                        mask = masks[bits] = f"mask-{number}-{len(masks)}"
                        yield mask, packed(np.frombuffer(bits, np.uint8))
                made = _strongest(p, allowed, mask)
            yield f"head-{number}-{at}-{head}", _packed(made)
        codes = np.stack(pictures)
        yield f"picture-{number}-{at}", _packed(frame({"rows": codes.shape[1], "columns": codes.shape[2]}, codes=codes))
        yield f"tracks-{number}-{at}", _packed(_tracks(call))
        walk = _walk(call)
        if walk:
            yield f"walk-{number}-{at}", _packed(walk)


def _packed(made: bytes) -> str:
    return packed(np.frombuffer(made, np.uint8))


def _pool(p: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Sums over the cells of a map."""
    return np.add.reduceat(np.add.reduceat(p, edges(p.shape[0], rows)[:-1], 0), edges(p.shape[1], columns)[:-1], 1)


def _picture(p: np.ndarray, allowed: np.ndarray) -> np.ndarray:
    """The head as a small picture: the mean over a cell's rows of the sum over its keys, as codes."""
    Q, K = p.shape
    rows, columns = min(Q, PICTURE), min(K, PICTURE)
    share = _pool(p, rows, columns) / np.diff(edges(Q, rows))[:, None]
    return encode(share, _pool(allowed.astype(np.int32), rows, columns) > 0)[0]


def _strongest(p: np.ndarray, allowed: np.ndarray, mask: str | None) -> bytes:
    Q, K = p.shape
    count = min(STRONGEST, K)
    order = np.argpartition(np.where(np.isnan(p), -np.inf, -p), count - 1, 1)[:, :count]
    order.sort(1)
    strong, seen = np.take_along_axis(p, order, 1), np.take_along_axis(allowed, order, 1)
    coarse, fine = encode(strong, seen)
    keys = np.where(seen | (coarse > 0), order, 65535).astype(np.uint16)
    others = allowed.copy()
    np.put_along_axis(others, order, False, 1)
    rows, columns = min(Q, REST), min(K, REST)
    with np.errstate(invalid="ignore"):
        mean = _pool(np.where(others, p, 0), rows, columns) / np.maximum(_pool(others.astype(np.int32), rows, columns), 1)
    rest = encode(mean)[0]
    exact = f"the {count} strongest keys of each row are exact, others are the mean of about {-(-Q // rows)} × {-(-K // columns)} pairs"
    header = {"exact": exact, "restRows": rows, "restColumns": columns, "mask": mask}
    return frame(header, keys=keys, coarse=coarse, fine=fine, rest=rest)


def _tracks(call: Call) -> bytes:
    """One byte per row and figure, in shares of the largest of its kind in the call."""
    parts, most = [], []
    for name in TRACKS:
        values = np.nan_to_num(np.asarray(call.received if name == "received" else call.rows[name], np.float64))
        top = float(values.max(initial=0)) or 1.0
        parts.append(np.rint(np.clip(values, 0, None) / top * 255).astype(np.uint8).ravel())
        most.append(top)
    return frame({"names": TRACKS, "most": most}, tracks=np.concatenate(parts))


def _walk(call: Call) -> bytes | None:
    """q, k, v, x and out in half precision, where they are few; the page computes the steps between them."""
    found = {"lse": call.lse.astype(np.float32)}
    for name in ("q", "k", "v", "x", "out"):
        part = getattr(call, name)
        if part is not None:
            found[name] = np.clip(np.asarray(part, np.float32), -65504, 65504).astype(np.float16).view(np.uint16)
    if call.sinks is not None:
        found["sinks"] = np.asarray(call.sinks, np.float32)
    if "q" not in found or sum(part.size for part in found.values()) > WALKED:
        return None
    return frame({"exact": "to three digits"}, **found)
