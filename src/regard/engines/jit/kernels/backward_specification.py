"""What a backward kernel is compiled for, the slots of its arguments, and its working memory."""

from __future__ import annotations

from dataclasses import dataclass

from ..code.formats import Format
from .backward_parts.products import GRAIN
from .backward_parts.table_sums import SPAN
from .parts import table_tiles
from .parts.tasks import stack_entries

KEYS = 128  # in a task's tile
PHASES = ("rows", "keys", "queries")
ARRAYS = ("q", "k", "v", "out", "dout", "dq", "dk", "dv")
FIXED = (
    "next", "tasks", "phase",
    *(f"{array}{part}" for array in ARRAYS for part in ("", "_batch", "_head", "_row", "_depth")),
    "top", "total", "lost", "dlse", "rest", "softmax", "work",
    "H", "group", "groups", "G", "Q", "K", "scale", "score_factor", "exponent", "start", "lead",
    "offsets", "runs", "tile_ranges", "key_tiles", "tiles", "plan_batch", "plan_head",
    "progress", "finished", "flushed", "totals", "copies", "numbers", "ring", "blocks", "block",
    "dropout_seed", "dropout_threshold", "dropout_scale", "dropout_batch", "dropout_head",
)  # fmt: skip


@dataclass(frozen=True)
class Specification:
    """The compile-time parameters of a kernel. Everything else is an argument."""

    shape: tuple  # of the expressions (`emit.signature`)
    D: int
    E: int
    dtype: str
    rows: int  # W, a multiple of the vector's lanes
    wide: bool  # integers need 64 bits
    unit: tuple[bool, ...]  # which of ARRAYS have a contiguous depth axis
    dropout: bool
    # The tables that need a gradient: their numbers, and whether tasks add to the gradients directly.
    tables: tuple[tuple[int, bool], ...]
    few: int  # the rows of the only tile, if they are few: keys and depths are in the lanes of its products
    partial: (
        bool  # dk and dv are sums over some of the rows: in the dtype of sums; keys that no row visits are not written
    )
    squares: tuple[int, ...]  # bytes of an element of each table that is read in squares (parts/table_tiles.py)


def fixed_slots(spec: Specification) -> tuple[str, ...]:
    """The names of the kernel's slots: `FIXED`, and per table with a gradient the address and row stride of that."""
    return FIXED + tuple(f"{part}{number}" for number, _ in spec.tables for part in ("gradient", "width"))


def regions(spec: Specification, form: Format) -> dict[str, tuple[int, int]]:
    """The matrices of a thread's working memory: rows, and bytes of a row. Names that end in `t` are transposed; those
    in `p` have pairs of rows interleaved. The partial sums of dK and dV come after them.
    """
    D, E, W, size, step = (
        *(padded(depth, form) for depth in (spec.D, spec.E)),
        spec.rows,
        form.size,
        2 if form.pairs else 1,
    )
    narrow = size // step
    found = {
        "k": (KEYS, D * narrow),
        "v": (KEYS, E * narrow),
        "q": (W, D * narrow),
        "dout": (W, E * narrow),
        "qt": (D // step, W * size),
        "doutt": (E // step, W * size),
        "s": (KEYS, W * size),
        "ds": (KEYS, W * size),
        "out": (W, E * size),
        "room": (1, 1024),
        "state": (1, table_tiles.LINE),
        "spans": (1, table_tiles.padded(len(spec.tables) * SPAN)),
        "bits": (KEYS if spec.dropout else 0, W),
        "squares": (1, table_tiles.room(spec.squares, W, table_tiles.LINE // size)),
    }
    if form.pairs:
        found |= {
            "kp": (KEYS // 2, D * size),
            "qp": (W // 2, D * size),
            "doutp": (W // 2, E * size),
            "weights": (KEYS, W * narrow),
            "slopes": (KEYS, W * narrow),
            "slopesp": (KEYS // 2, W * size),
        }
    return found


def padded(depth: int, form: Format) -> int:
    """The depth padded to a multiple of the register tiles, as in working memory."""
    grain = 2 * GRAIN if form.pairs else GRAIN
    return -(-depth // grain) * grain


def scratch_bytes(spec: Specification, form: Format, blocks: int) -> int:
    """Working memory of one thread, for tasks that visit at most this many blocks of positions."""
    entry = KEYS * (padded(spec.D, form) + padded(spec.E, form)) * form.size
    return sum(rows * row for rows, row in regions(spec, form).values()) + stack_entries(blocks) * entry
