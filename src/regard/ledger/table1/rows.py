"""The rows of Table 1: for each kind of layer and length, what was counted and measured beside the formulas."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ...common.errors import Reason, Refused
from .counting import chain, operations
from .layers import Convolution, Recurrence, RestrictedAttention, SelfAttention
from .reach import path_length
from .timing import seconds

__all__ = ["KINDS", "LENGTHS", "TAPS", "WIDTH", "WINDOW", "Kind", "Row", "check_sizes", "exponent", "exponents", "rows"]

LENGTHS = (8, 16, 32, 64, 128, 256, 512, 1024)
WIDTH = 64
WINDOW = 8  # r of the restricted attention
TAPS = 3  # k of the convolutions
LONGEST, WIDEST = 4096, 1024
REACH_WIDTH = 8  # numbers per position where derivatives are followed, which do not depend on it


@dataclass(frozen=True)
class Kind:
    """A row of the paper's table, with what the layers here take exactly.

    complexity, sequential, maximum: the paper's columns. operations, steps, path: of n positions of d numbers each.
    layer: the layer at a depth, counted from 0, of some width.
    """

    name: str
    complexity: str
    sequential: str
    maximum: str
    operations: Callable[[int, int], int]
    steps: Callable[[int], int]
    path: Callable[[int], int]
    layer: Callable[[int, int], nn.Module]

    def stack(self, x: Tensor) -> Iterator[Callable[[Tensor], Tensor]]:
        """Layers on top of each other for an input, at most one for each position; of a recurrence, its steps."""
        for depth in range(len(x)):
            layer = self.layer(depth, x.shape[1]).to(x.dtype)
            if isinstance(layer, Recurrence):
                yield from layer.steps(x)
            yield layer


def _layers_of(n: int, base: int) -> int:
    """The least L with baseᴸ ≥ n."""
    return next(power for power in range(64) if base**power >= n)


KINDS = (
    Kind("self-attention", "n²·d", "1", "1",
         lambda n, d: 4 * n * n * d, lambda n: 2, lambda n: 1,
         lambda depth, d: SelfAttention()),
    Kind("recurrent", "n·d²", "n", "n",
         lambda n, d: 4 * n * d * d, lambda n: n, lambda n: n,
         lambda depth, d: Recurrence(d)),
    Kind("convolution", "k·n·d²", "1", "n/k",
         lambda n, d: 2 * TAPS * n * d * d, lambda n: 1, lambda n: -(-(n - 1) // (TAPS - 1)),
         lambda depth, d: Convolution(d, TAPS)),
    Kind("dilated convolution", "k·n·d²", "1", "log_k n",
         lambda n, d: 2 * TAPS * n * d * d, lambda n: 1, lambda n: _layers_of(n, TAPS),
         lambda depth, d: Convolution(d, TAPS, TAPS**depth)),
    Kind("restricted attention", "r·n·d", "1", "n/r",
         lambda n, d: 4 * WINDOW * n * d, lambda n: 2, lambda n: -(-(n - 1) // (WINDOW - 1)),
         lambda depth, d: RestrictedAttention(WINDOW)),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One kind of layer at one length: pairs are (formula, counted or measured), and must agree as integers.

    operations: of the products, two for each multiply-add. steps: the longest chain of products that wait for each
    other. path: layers (of a recurrence, steps) until the last position depends on the first. seconds: of a call in
    float32 with one thread, if it was measured.
    """

    kind: str
    length: int
    width: int
    operations: tuple[int, int]
    steps: tuple[int, int]
    path: tuple[int, int]
    seconds: float | None = None

    @property
    def faults(self) -> list[str]:
        """The columns in which formula and measurement differ."""
        columns = {"operations": self.operations, "steps": self.steps, "path": self.path}
        return [name for name, (formula, found) in columns.items() if formula != found]


def rows(lengths: Sequence[int] = LENGTHS, width: int = WIDTH, *, measure: bool = False) -> list[Row]:
    """Table 1: every kind of layer at every length, counted and shown by running.

    Args:
        lengths: numbers of positions n.
        width: numbers per position d.
        measure: whether calls are timed.

    Returns:
        The rows, by kind and length.

    Raises:
        Refused: lengths shorter than the window of the restricted attention, or sizes that take too long.

    Source:
        Vaswani et al., "Attention is all you need", 2017, Table 1.

    Examples:
        >>> for row in rows([16], 8)[:2]:
        ...     print(row.kind, row.operations, row.steps, row.path)
        self-attention (8192, 8192) (2, 2) (1, 1)
        recurrent (4096, 4096) (16, 16) (16, 16)
    """
    check_sizes("lengths", lengths, WINDOW, LONGEST)
    check_sizes("width", [width], 1, WIDEST)
    return [_row(kind, n, width, measure) for kind in KINDS for n in lengths]


def _row(kind: Kind, n: int, width: int, measure: bool) -> Row:
    with _reproducible(n):
        layer, x = kind.layer(0, width), torch.randn(n, width)
        narrow = torch.randn(n, REACH_WIDTH, dtype=torch.float64)
        work = operations(layer, x)
        steps = chain(layer(x.clone().requires_grad_()))
        path = path_length(kind.stack(narrow), narrow)
        time = _timed(layer, x) if measure else None
    return Row(
        kind.name,
        n,
        width,
        operations=(kind.operations(n, width), work),
        steps=(kind.steps(n), steps),
        path=(kind.path(n), path),
        seconds=time,
    )


@contextlib.contextmanager
def _reproducible(seed: int) -> Iterator[None]:
    """Inside, random numbers have a seed of their own, and torch one thread: thousands of small calls are faster so."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(threads)


def _timed(layer: nn.Module, x: Tensor) -> float:
    with torch.inference_mode():
        return seconds(lambda: layer(x))


def check_sizes(name: str, sizes: Iterable[int], least: int, most: int) -> None:
    """Raises `Refused` for a size out of range, for one that repeats, and for none."""
    sizes = list(sizes)
    expected, fix = f"integers from {least} to {most}", f"pass other {name}"
    wrong = [size for size in sizes if type(size) is not int or not least <= size <= most]
    reasons = [Reason(f"an impossible {name}", given=str(size)[:60], expected=expected, fix=fix) for size in wrong]
    if not sizes or len(set(sizes)) < len(sizes):
        given = ", ".join(map(str, sizes[:20])) or "nothing"
        reasons.append(Reason(f"no {name}, or one twice", given=given, expected="each once", fix=fix))
    if reasons:
        raise Refused("table1", reasons)


def exponent(points: Sequence[tuple[float, float]]) -> float:
    """The slope of a line through (n, value) on logarithmic scales: value ≈ c · n^slope.

    >>> round(exponent([(8, 128), (16, 512), (32, 2048)]), 9)
    2.0
    """
    xs, ys = ([math.log(each[axis]) for each in points] for axis in (0, 1))
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    across = sum((x - x_mean) ** 2 for x in xs)
    return sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True)) / across if across else math.nan


def exponents(table: Sequence[Row]) -> dict[str, dict[str, float]]:
    """For each kind, how its counted operations, steps and path (and seconds, of the longer half) grow with n."""
    found: dict[str, dict[str, float]] = {}
    for kind in dict.fromkeys(row.kind for row in table):
        mine = [row for row in table if row.kind == kind]
        found[kind] = {
            name: exponent([(row.length, getattr(row, name)[1]) for row in mine])
            for name in ("operations", "steps", "path")
        }
        timed = [(row.length, row.seconds) for row in mine if row.seconds is not None]
        if timed:
            found[kind]["seconds"] = exponent(timed[len(timed) // 2 :] if len(timed) > 2 else timed)
    return found
