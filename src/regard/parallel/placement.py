"""Placement: who holds and who computes which part of a sequence, as frozen data, and as a file."""

from __future__ import annotations

import base64
import hashlib
import os
import zlib
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, SupportsIndex, get_type_hints

import numpy as np

from ..common.dtypes import FLOATS
from ..common.errors import refuse
from ..common.files import strict_json
from ..common.files.output import replacing
from ..common.public import ArrayT
from ..common.text.terminal_text import printable
from ..common.text.units import seconds, unit
from ..language.checks.numbers import LIMIT, whole
from .work import Candidate, Sizes, positions_of

FORM = {"dtype": str, "length": int, "deflated": str}


def packed(array: np.ndarray) -> dict[str, str | int]:
    """An array of one axis, int32 or int64, as an object of JSON."""
    raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    text = base64.b64encode(zlib.compress(raw.tobytes(), 6)).decode()
    return {"dtype": raw.dtype.str, "length": len(raw), "deflated": text}


def unpacked(found: dict[str, str | int], dtype: str) -> np.ndarray:
    """The array. ValueError: it is damaged, of another dtype, or not as long as it says.

    >>> unpacked(packed(np.arange(3, dtype=np.int32)), "<i4").tolist()
    [0, 1, 2]
    """
    if found["dtype"] != dtype:
        raise ValueError(f"{found['dtype']}, expected {dtype}")
    try:
        raw = zlib.decompress(base64.b64decode(str(found["deflated"]), validate=True))
    except (ValueError, zlib.error) as error:
        raise ValueError(f"its data are damaged: {error}") from error
    size = np.dtype(dtype).itemsize * int(found["length"])
    if len(raw) != size:
        raise ValueError(f"its data have {len(raw)} bytes, expected {size}")
    return np.frombuffer(raw, dtype).astype(np.dtype(dtype).newbyteorder("="))


VERSION = 1  # of the file
ARRAYS = {"owner": "<i4", "worker": "<i4", "pairs": "<i8", "offsets": "<i8", "pages": "<i4"}
PARTS = {
    "regard_placement": int,
    "sizes": get_type_hints(Sizes),
    "ranks": int,
    "mask": str,
    "peak": float,
    "bandwidth": float,
    "chosen": str,
    "candidates": [get_type_hints(Candidate)],
    **dict.fromkeys(ARRAYS, FORM),
}
FIX = "save the placement again"


@printable
@dataclass(frozen=True, eq=False, kw_only=True)
class Placement:
    """Where the tokens of one sequence are, who computes which rows, and which pages travel.

    A page is 128 consecutive tokens, a block the query rows of the same positions. Arrays cannot be written to.

    Args:
        sizes: tokens, heads, depths and dtype.
        ranks: number of ranks R.
        mask: the mask as text.
        peak: operations per second of a rank that were assumed.
        bandwidth: bytes per second of a rank, in each direction, that were assumed.
        candidates: every candidate that was tried, with its numbers.
        chosen: the one that was taken.
        owner: the rank that holds each page, (pages,) int32.
        worker: the rank that computes each block of rows, (pages,) int32.
        pairs: visited pairs of query and key of each block, over all heads, (pages,) int64.
        offsets: where the pages of each pair of ranks begin in `pages`, (R · R + 1,) int64; see `travel`.
        pages: the pages that travel, (n,) int32.

    Examples:
        >>> import regard as rg, regard.parallel as rp
        >>> place = rp.place(1000, ranks=3, mask=rg.causal() & rg.window(256))
        >>> place.owner.tolist(), place.travel(source=0, target=1).tolist()
        ([0, 0, 0, 1, 1, 1, 2, 2], [1, 2])
        >>> rp.Placement.from_json(place.to_json()) == place
        True
    """

    sizes: Sizes
    ranks: int
    mask: str
    peak: float
    bandwidth: float
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    owner: np.ndarray
    worker: np.ndarray
    pairs: np.ndarray
    offsets: np.ndarray
    pages: np.ndarray

    def __post_init__(self) -> None:
        for name in ARRAYS:
            getattr(self, name).flags.writeable = False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Placement):
            return NotImplemented
        return all(np.array_equal(getattr(self, each.name), getattr(other, each.name)) for each in fields(self))

    def __hash__(self) -> int:
        return hash((self.sizes, self.ranks, self.mask, self.chosen, self.owner.tobytes(), self.worker.tobytes()))

    @property
    def digest(self) -> str:
        """A hash of who holds and who computes what: the same on ranks with the same placement."""
        held = self.owner.tobytes() + self.worker.tobytes()
        return f"{self.sizes.tokens} tokens, {self.ranks} ranks, {hashlib.sha256(held).hexdigest()[:16]}"

    @property
    def ring_bytes(self) -> float:
        """Bytes that each rank receives in a ring, or by gathering everything: all keys and values but its own."""
        return self.sizes.tokens * self.sizes.key_bytes * (self.ranks - 1) / self.ranks

    def positions(self, rank: SupportsIndex, *, part: SupportsIndex = 0, parts: SupportsIndex = 1) -> np.ndarray:
        """The positions of the tokens that a rank holds, in order (int64); or one of consecutive parts of them, the
        longer ones first, where several ranks divide the heads.
        """
        count = whole(parts, "place", "parts")
        number = _rank(part, count)
        pages = np.flatnonzero(self.owner == _rank(rank, self.ranks))
        return np.array_split(positions_of(pages, self.sizes.tokens), count)[number]

    def shard(
        self,
        array: ArrayT,
        *,
        axis: SupportsIndex,
        rank: SupportsIndex,
        part: SupportsIndex = 0,
        parts: SupportsIndex = 1,
    ) -> ArrayT:
        """The tokens of `positions(rank)` out of an array or tensor that has all tokens along an axis."""
        place = whole(axis, "place", "axis")
        shape = getattr(array, "shape", ())
        if not -len(shape) <= place < len(shape) or shape[place] != self.sizes.tokens:
            raise refuse(
                "place",
                "the axis does not have the tokens of the placement",
                f"axis {place} of {list(shape)}",
                f"an axis of {self.sizes.tokens:,}",
                "pass the whole sequence, and the axis of its tokens",
            )
        index: list[Any] = [slice(None)] * len(shape)
        index[place] = self.positions(rank, part=part, parts=parts)
        return array[tuple(index)]

    def travel(self, source: SupportsIndex, target: SupportsIndex) -> np.ndarray:
        """The pages that rank `source` sends to rank `target` (int32), in order."""
        pair = _rank(target, self.ranks) * self.ranks + _rank(source, self.ranks)
        return self.pages[self.offsets[pair] : self.offsets[pair + 1]]

    def __str__(self) -> str:
        sizes = self.sizes
        lines = [
            f"place   {sizes.tokens:,} tokens over {self.ranks} {'rank' if self.ranks == 1 else 'ranks'}: "
            f"{sizes.heads} heads, {sizes.key_heads} key heads, depth {sizes.depth}"
            f"{f' and {sizes.value_depth}' if sizes.value_depth != sizes.depth else ''}, {sizes.dtype}",
            f"mask    {self.mask}",
            f"chosen  {self.chosen.name}",
            "",
            f"        {'candidate':<12}{'balance':>8}  {'bytes in, mean':>14}  {'of a ring':>9}  {'moved':>7}  time",
        ]
        for each in self.candidates:
            share = f"{each.mean_bytes / self.ring_bytes:.1%}" if self.ring_bytes else "–"
            lines.append(
                f"{'→' if each == self.chosen else ' ':>6}  {each.name:<12}{each.balance:>8.2f}"
                f"  {unit(each.mean_bytes, 'B'):>14}  {share:>9}  {each.moved:>7,}  {seconds(each.seconds)}"
            )
        return "\n".join(lines)

    def to_json(self) -> str:
        """The placement as JSON, from which `from_json` makes an equal one, bit for bit."""
        found: dict[str, Any] = {"regard_placement": VERSION, "sizes": asdict(self.sizes), "chosen": self.chosen.name}
        found |= {name: getattr(self, name) for name in ("ranks", "mask", "peak", "bandwidth")}
        found |= {"candidates": [asdict(each) for each in self.candidates]}
        found |= {name: packed(getattr(self, name)) for name in ARRAYS}
        return strict_json.dumps(found, "place")

    @classmethod
    def from_json(cls, text: str) -> Placement:
        """The placement of a JSON text. Refused: the text is not a placement, or its parts contradict each other."""
        try:
            found = strict_json.loads(text.encode())
        except ValueError as error:
            raise _unreadable(str(error)) from error
        if isinstance(found, dict) and found.get("regard_placement") not in (None, VERSION):
            raise _unreadable(f"version {found['regard_placement']!r}")
        reasons = list(strict_json.wrong(found, PARTS, "placement", FIX))
        if reasons:
            raise _unreadable("; ".join(f"{each.what}, {each.given}" for each in reasons[:3]))
        sizes = Sizes(**found["sizes"])
        candidates = tuple(Candidate(**each) for each in found["candidates"])
        chosen = [each for each in candidates if each.name == found["chosen"]]
        limits = (sizes.tokens, sizes.heads, sizes.key_heads, sizes.depth, sizes.value_depth, found["ranks"])
        if not all(0 < number < LIMIT for number in limits) or sizes.dtype not in FLOATS or len(chosen) != 1:
            raise _unreadable("sizes, or a chosen candidate, that no placement has")
        ranks, pages = found["ranks"], sizes.pages
        arrays = {}
        for name, dtype in ARRAYS.items():
            try:
                arrays[name] = unpacked(found[name], dtype)
            except ValueError as error:
                raise _unreadable(f"{name}: {error}") from error
        _check(arrays, ranks, pages)
        return cls(
            sizes=sizes,
            ranks=ranks,
            mask=found["mask"],
            peak=float(found["peak"]),
            bandwidth=float(found["bandwidth"]),
            candidates=candidates,
            chosen=chosen[0],
            **arrays,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the placement to a JSON file. Refused: it cannot be written; an old file is then as it was."""
        with replacing("place", "path", Path(path)) as draft:
            draft.write_text(self.to_json(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Placement:
        """The placement that `save` wrote. Refused: it is not one. OSError: the file cannot be read."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise _unreadable(f"{path}: not a text") from error
        return cls.from_json(text)


def _rank(value: Any, ranks: int) -> int:
    number = whole(value, "place", "the rank")
    if not 0 <= number < ranks:
        expected = f"0 to {ranks - 1}"
        raise refuse("place", "the rank does not exist", f"{number}", expected, "check the rank")
    return number


def _check(arrays: dict[str, np.ndarray], ranks: int, pages: int) -> None:
    """Refused: arrays of wrong sizes, ranks or pages that do not exist, and pages sent by a rank without them."""
    owner, worker, offsets, sent = (arrays[name] for name in ("owner", "worker", "offsets", "pages"))
    whole_sizes = len(owner) == len(worker) == len(arrays["pairs"]) == pages and len(offsets) == ranks * ranks + 1
    if not whole_sizes or offsets[0] != 0 or offsets[-1] != len(sent) or (np.diff(offsets) < 0).any():
        raise _unreadable("arrays whose sizes contradict each other")
    inside = [
        (each >= 0).all() and (each < most).all() for each, most in ((owner, ranks), (worker, ranks), (sent, pages))
    ]
    if not all(inside) or (arrays["pairs"] < 0).any():
        raise _unreadable("a rank or a page that does not exist")
    source = np.repeat(np.arange(ranks * ranks) % ranks, np.diff(offsets))
    if (owner[sent] != source).any():
        raise _unreadable("a page that is sent by a rank that does not hold it")


def _unreadable(given: str):
    expected = "JSON that Placement.to_json wrote"
    return refuse("place", "this is not a placement", given[:300], expected, FIX)
