"""The data blocks of a page: every weight of a short run; of a longer run the strongest keys and pooled maps.

A block is a frame (a JSON header followed by arrays) as deflated base64. Stored whole, a head is two bytes per weight.
Stored in part, it is the strongest keys of each row to within 0.011 %, and the mean of the others in each block of a
coarse map. Invalid weights (NaN, out of range, forbidden) are stored before the strongest, and marked in thumbnails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import numpy as np

from ...language.measures import edges
from ..runs.call import Call
from ..runs.codes import LEAK, encode, packed, wrong
from ..runs.run import Run
from ..runs.tiles import joined


def frame(header: dict, **parts: np.ndarray) -> bytes:
    """The header and the arrays as bytes."""
    described = [{"name": name, "dtype": part.dtype.name, "shape": part.shape} for name, part in parts.items()]
    begin = json.dumps(header | {"parts": described}, allow_nan=False).encode()
    pieces = [len(begin).to_bytes(4, "little"), begin]
    size = 4 + len(begin)
    for part in parts.values():
        pieces += [bytes(-size % 4), np.ascontiguousarray(part).tobytes()]
        size += -size % 4 + part.nbytes
    return b"".join(pieces)


WHOLE = 2_500_000  # weights: below this all are stored, with two bytes each before compression
MOST = 60_000_000  # weights: below this they are stored in part; more take too long to compute
LARGEST = 1 << 22  # the most weights of one head, which the browser unpacks as a whole
ROOM = 6_600_000  # bytes of a page for weights, tracks and thumbnails, compressed
PER_KEY, PER_ROW, PER_CELL = 5.4, 14, 1.3  # bytes of a stored key, of the tracks of a row, of a cell of a thumbnail
FEWEST, FULLEST = 4, 64  # keys per row
NO_KEY = 65535  # fills rows that have fewer keys than are stored
NO_NUMBER = 65535  # NaN in the tracks
REST = 64  # blocks along a side of the coarse map
THUMBNAIL = 44  # cells along each side of a thumbnail in the overview of heads
# Numbers of q, k, v, x and out that are stored for the step-by-step computation; more if all weights are stored.
WALKED = 250_000
PER_NUMBER = 2.6  # bytes of one of these numbers, or of a weight in a run that is stored whole
ROUNDED = 1e-4  # a relative difference below the resolution of half precision
OF_KEYS = ("received", "readers", "lengths")
OF_ROWS = ("entropy", "spread", "special", "maximum", "attended", "moved")


def _weights(run: Run) -> int:
    return sum(int(np.prod(call.shape)) for call in run.calls)


def _per_row(run: Run) -> int:
    """The number of keys of each row that fit in the page."""
    heads, rows = sum(call.shape[0] for call in run.calls), sum(call.shape[0] * call.shape[1] for call in run.calls)
    return int(min(FULLEST, (ROOM - PER_ROW * rows - PER_CELL * THUMBNAIL**2 * heads) / PER_KEY / rows))


def fits(run: Run) -> bool:
    """Whether the run fits in one page; longer runs need the server."""
    largest = max(call.shape[1] * call.shape[2] for call in run.calls)
    if largest > LARGEST or max(call.shape[2] for call in run.calls) >= NO_KEY:
        return False
    return _weights(run) <= MOST and (kept(run) == "whole" or _per_row(run) >= FEWEST)


def kept(run: Run) -> str:
    """How a page stores the run: "whole" or "part"."""
    return "whole" if _weights(run) <= WHOLE else "part"


def blocks(number: int, run: Run) -> Iterator[tuple[str, str]]:
    """(id, text) of every block of run `number` of the page."""
    whole, count = kept(run) == "whole", _per_row(run)
    masks: dict[bytes, str] = {}
    names = walked(run)
    for at, call in enumerate(run.calls):
        thumbnails, codes = [], []
        for head in range(call.shape[0]):
            p, allowed = call.weights(heads=head)[0], call.allowed(heads=head)[0]
            faults = wrong(p, allowed)
            thumbnails.append(_thumbnail(p, allowed, faults))
            if whole:
                codes.append(encode(p, allowed))
                continue
            mask = None
            if not allowed.all():
                bits = np.packbits(allowed).tobytes()
                mask = masks.get(bits)
                if mask is None:
                    mask = masks[bits] = f"mask-{number}-{len(masks)}"
                    yield mask, packed(bits)
            yield f"head-{number}-{at}-{head}", packed(_strongest(p, allowed, faults, mask, min(count, call.shape[2])))
        if whole:
            coarse, fine = (np.stack(part) for part in zip(*codes, strict=True))
            yield f"heads-{number}-{at}", packed(frame({"exact": "exact"}, coarse=coarse, fine=fine))
        stacked = np.stack(thumbnails)
        sizes = {"rows": stacked.shape[1], "columns": stacked.shape[2]}
        yield f"overview-{number}-{at}", packed(frame(sizes, codes=stacked))
        yield f"tracks-{number}-{at}", packed(_tracks(call))
        if names:
            yield f"walk-{number}-{at}", packed(_walk(call, names, whole))


def _pool(numbers: np.ndarray, rows: int, columns: int, law=np.add) -> np.ndarray:
    """Sums, or the largest, over the cells of a map."""
    Q, K = numbers.shape
    return joined(law, numbers, edges(Q, rows)[:-1], edges(K, columns)[:-1])


def _thumbnail(p: np.ndarray, allowed: np.ndarray, faults: np.ndarray | None) -> np.ndarray:
    """The head as codes of pooled cells: the mean over a cell's rows of the sum over its keys; invalid weights take
    precedence.
    """
    Q, K = p.shape
    rows, columns = min(Q, THUMBNAIL), min(K, THUMBNAIL)
    plain = p if faults is None else np.where(faults, 0, p)
    share = _pool(plain, rows, columns) / np.diff(edges(Q, rows))[:, None]
    worst = 0 if faults is None else _pool(faults, rows, columns, np.maximum)
    return encode(share, _pool(allowed, rows, columns, np.logical_or), worst)[0]


def _strongest(p: np.ndarray, allowed: np.ndarray, faults: np.ndarray | None, mask: str | None, count: int) -> bytes:
    """The strongest keys of each row, in order of position, and the mean of the others by blocks."""
    Q, K = p.shape
    plain = p if faults is None else np.where(faults, 2, p)
    order = np.argpartition(-plain, count - 1, 1)[:, :count]
    order.sort(1)
    attended = np.take_along_axis(allowed, order, 1)
    coarse, fine = encode(np.take_along_axis(p, order, 1), attended)
    keys = np.where(attended | (coarse > 0), order, NO_KEY).astype(np.uint16)
    others = allowed.copy()
    np.put_along_axis(others, order, False, 1)
    rows, columns = min(Q, REST), min(K, REST)

    def mean(of: np.ndarray) -> np.ndarray:
        return _pool(np.where(of, p, 0), rows, columns) / np.maximum(_pool(of.astype(np.int32), rows, columns), 1)

    parts = {"keys": keys, "coarse": coarse, "fine": fine}
    if faults is None:
        parts["rest"] = encode(mean(others))[0]
    else:
        np.put_along_axis(more := faults.copy(), order, 0, 1)
        parts["rest"] = encode(mean(others & (more == 0)))[0]
        # More invalid weights than are stored: which rows have them (128: on masked pairs too), and forbidden weight by
        # blocks.
        if more.any():
            rows_of = np.where(more == LEAK, 0, more)
            parts["wrong"] = rows_of.max(1) | np.where(np.where(allowed, 0, rows_of).any(1), 128, 0).astype(np.uint8)
            parts["leaks"] = encode(np.abs(mean(more == LEAK)))[0]
    exact = (
        f"the {count} strongest keys of each row are exact, others are the mean of about {-(-Q // rows)} "
        f"× {-(-K // columns)} pairs"
    )
    return frame({"exact": exact, "restRows": rows, "restColumns": columns, "mask": mask}, **parts)


def along_axes(call: Call) -> dict[str, np.ndarray]:
    """The available figures along the axes of the maps of a call: of rows, (H, Q), and of keys, (H, K)."""
    found = {name: call.rows[name] for name in OF_ROWS if name in call.rows}
    if call.received is not None:
        found |= {name: getattr(call, name) for name in OF_KEYS if name != "lengths" or call.lengths is not None}
    return found


def _tracks(call: Call) -> bytes:
    """Two bytes per row and figure: shares of the largest value in the call, 0 … 65534, and NO_NUMBER."""
    parts, most = [], []
    figures = along_axes(call)
    for values in figures.values():
        known = np.isfinite(values)
        plain = np.where(known, np.clip(np.asarray(values, np.float64), 0, None), 0)
        top = float(plain.max(initial=0)) or 1.0
        parts.append(np.where(known, np.rint(plain / top * (NO_NUMBER - 1)), NO_NUMBER).astype(np.uint16).ravel())
        most.append(top)
    return frame({"names": list(figures), "most": most}, tracks=np.concatenate(parts))


def walked(run: Run) -> tuple[str, ...]:
    """The arrays that fit in the page, the most important first."""
    room = max(WALKED, ROOM / PER_NUMBER - _weights(run)) if kept(run) == "whole" else WALKED
    for names in (("q", "k", "v", "x", "out"), ("q", "k", "v", "out"), ("q", "k", "v"), ("q", "k")):
        parts = [getattr(call, name) for call in run.calls for name in names]
        if sum(part.size for part in parts if part is not None) <= room:
            return names
    return ()


def _walk(call: Call, names: tuple[str, ...], whole: bool) -> bytes:
    """The inputs of the step-by-step computation, in half precision; the page computes the steps.

    The model's output is left out if it was recorded to be equal to Σ p v in all rows, which the page computes.
    """
    notes = call.notes
    found_so = notes.get("compared") == "all rows" and notes.get("empty") in (None, "0")
    near = isinstance(difference := notes.get("difference"), float) and difference <= ROUNDED
    same = whole and call.v is not None and found_so and near
    found, powers = {"lse": np.asarray(call.lse, np.float32)}, {}
    for name in names:
        part = getattr(call, name)
        if part is not None and not (same and name == "out"):
            found[name], powers[name] = _halved(np.asarray(part, np.float32))
    if call.sinks is not None:
        found["sinks"] = np.asarray(call.sinks, np.float32)
    exact = "with a relative error of at most 0.05 %"
    return frame({"exact": exact, "same": same, "powers": powers}, **found)


def _halved(numbers: np.ndarray) -> tuple[np.ndarray, int]:
    """The numbers in half precision, divided by a power of two, and its exponent; 11 bits of each are kept.

    Half precision has no 11 bits for numbers below 2⁻²⁹ of the largest: arrays with such numbers stay float32.
    """
    sizes = np.abs(numbers[np.isfinite(numbers) & (numbers != 0)])
    power = 0 if not sizes.size else int(np.floor(np.log2(sizes.max()))) - 14
    if sizes.size and sizes.min() < 2.0 ** (power - 14):
        return numbers, 0
    return np.ldexp(numbers.astype(np.float64), -power).astype(np.float16).view(np.uint16), power
