"""Probes: fixed small calls that together separate the mistakes of the catalog, and what functions with mistakes answer
to them; the matrix: which probe rejects which mistake, which mistakes are named, and which are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from .backward import backward
from .call import Answer, Call, Conventions
from .expected import Expected, compared_gradients, expected
from .explain import explain
from .forward import forward, meaning
from .mistake import Mistake, apply
from .mistakes import CATALOG
from .observed import ObservedAnswer

TEXTBOOK, OTHER = Conventions(), Conventions(causal="top-left", groups="tile")
CONVENTIONS = (TEXTBOOK, OTHER)


@dataclass(frozen=True, eq=False)
class Probe:
    """A call under some conventions. says: what it shows"""

    id: str
    says: str
    call: Call
    conventions: Conventions = TEXTBOOK


@cache
def probes(dtype: Any = np.float32) -> tuple[Probe, ...]:
    """The probes in a dtype; their numbers are the same in every process."""
    return (*_textbook(dtype), *_edges(dtype), *_gradients(dtype))


class _Drawn:
    """Calls of some sizes with normal numbers."""

    def __init__(self, seed: int, dtype: Any, sizes: tuple[int, int, int, int, int], D: int = 6, E: int = 0):
        B, H, G, Q, K = sizes
        self.rng, self.dtype = np.random.default_rng(seed), dtype
        self.shape = B, H, Q, K
        self.q, self.k, self.v = (self.normal(B, *size) for size in ((H, Q, D), (G, K, D), (G, K, E or D)))

    def normal(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(self.dtype)

    def allowed(self, *shape: int, empty: int | None = None) -> np.ndarray:
        """A random mask, whose row `empty` attends to nothing."""
        found = self.rng.random(shape) < 0.6
        found[..., 0] |= ~found.any(-1)
        if empty is not None:
            found[..., empty, :] = False
        return found

    def call(self, **arguments: Any) -> Call:
        return Call(**{"q": self.q, "k": self.k, "v": self.v} | arguments)


def _textbook(dtype: Any) -> tuple[Probe, ...]:
    square, pair = _Drawn(1, dtype, (2, 4, 2, 5, 5)), _Drawn(2, dtype, (1, 2, 2, 4, 4))
    short, long = _Drawn(3, dtype, (1, 2, 1, 3, 7)), _Drawn(4, dtype, (1, 2, 1, 6, 3))
    shape = square.shape
    bias = square.normal(*shape) * square.allowed(*shape)  # with zeros
    return (
        Probe("plain", "scale, groups, heads, batch entries", square.call()),
        Probe("heads", "as many key heads as query heads", pair.call()),
        Probe("one-row", "decoding: one row", _Drawn(5, dtype, (2, 4, 2, 1, 6)).call(causal=True)),
        Probe("scale", "another scale than 1/√D", square.call(scale=0.3)),
        Probe("causal", "as many rows as keys", square.call(causal=True)),
        Probe("causal-short", "fewer rows than keys", short.call(causal=True)),
        Probe("causal-long", "more rows than keys, so that some attend to nothing", long.call(causal=True)),
        Probe("mask", "another mask for each head and batch entry", square.call(mask=square.allowed(*shape, empty=2))),
        Probe("mask-short", "a mask of fewer rows than keys", short.call(mask=short.allowed(1, 2, 3, 7))),
        Probe("mask-causal", "a mask in a causal call", square.call(mask=square.allowed(*shape), causal=True)),
        Probe("window", "keys before a row and its own", square.call(causal=True, window=(2, 0))),
        Probe("window-0", "a row's own key alone", square.call(causal=True, window=(0, 0))),
        Probe("window-both", "keys before and after a row", square.call(window=(3, 1))),
        Probe("lengths", "padding", square.call(lengths=np.array([3, 4]))),
        Probe("bias", "a bias of each head and batch entry", square.call(bias=bias)),
        Probe("bias-square", "a bias for all heads", pair.call(bias=pair.normal(1, 1, 4, 4), scale=0.3)),
        Probe("softcap", "with a mask", square.call(softcap=1.2, mask=square.allowed(*shape))),
        Probe("softcap-bias", "a bias and a softcap", square.call(softcap=1.2, bias=square.normal(*shape))),
        Probe("sinks", "a sink in each head", square.call(sinks=square.normal(4))),
        Probe("depths", "an odd depth, and values of another", _Drawn(9, dtype, (2, 2, 2, 4, 5), 5, 3).call()),
        Probe("causal-many", "more rows than a block", _Drawn(10, dtype, (1, 1, 1, 70, 70), 2).call(causal=True)),
        Probe("float64", "small numbers that are added", _Drawn(11, np.float64, (1, 2, 2, 3, 6)).call()),
        Probe("top-left", "other conventions: rows from the first key", short.call(causal=True), OTHER),
        Probe("top-left-mask", "the same with a mask", short.call(mask=short.allowed(1, 2, 3, 7)), OTHER),
        Probe("tiled", "other conventions: heads in blocks", square.call(), OTHER),
    )


def _edges(dtype: Any) -> tuple[Probe, ...]:
    drawn = _Drawn(6, dtype, (1, 2, 1, 5, 5))
    large = drawn.q * 600
    low = np.full_like(drawn.q, 200), np.full_like(drawn.k, -200) + drawn.k
    apart = drawn.q * np.array([1, -300, 2, 300, 0.1])[:, None].astype(dtype)
    nan_v, nan_k = drawn.v.copy(), drawn.k.copy()
    nan_v[..., -1, 0], nan_k[..., -1, :] = np.nan, np.nan
    many = _Drawn(7, dtype, (1, 1, 1, 2, 250))
    mask, empty = drawn.allowed(1, 2, 5, 5), drawn.allowed(1, 2, 5, 5, empty=1)
    return (
        Probe("empty", "rows that attend to nothing", drawn.call(mask=empty)),
        Probe("empty-sinks", "such rows with sinks", drawn.call(mask=empty, sinks=drawn.normal(2))),
        Probe("large", "scores near 1000", drawn.call(q=large, mask=mask)),
        Probe("low", "scores near −80000, some masked", drawn.call(q=low[0], k=low[1], mask=mask)),
        Probe("apart", "rows of different sizes", drawn.call(q=apart)),
        Probe("nan-values", "NaN in a value that is masked", drawn.call(v=nan_v, lengths=np.array([4]))),
        Probe("nan-keys", "NaN in a masked key", drawn.call(k=nan_k, lengths=np.array([4]))),
        Probe("many-keys", "no whole number of blocks", many.call()),
        Probe("many-keys-sinks", "more keys than a block, and a sink", many.call(sinks=many.normal(1))),
    )


def _gradients(dtype: Any) -> tuple[Probe, ...]:
    drawn = _Drawn(8, dtype, (2, 2, 1, 3, 3), 2)
    dout, dlse, bias = drawn.normal(2, 2, 3, 2), drawn.normal(2, 2, 3), drawn.normal(1, 2, 3, 3)
    mask, nan = drawn.allowed(2, 2, 3, 3), drawn.v.copy()
    nan[..., -1, :] = np.nan
    equal = _Drawn(9, dtype, (2, 2, 2, 3, 3), 2)
    calls = (
        ("plain", "shared key heads", drawn.call()),
        ("heads", "as many key heads as query heads", equal.call()),
        ("scale", "another scale", drawn.call(scale=1.7)),
        ("mask", "a mask", drawn.call(mask=mask)),
        ("causal", "a causal mask", drawn.call(causal=True)),
        ("bias", "a bias that is the same for all batch entries", drawn.call(bias=bias)),
        ("softcap", "a softcap", drawn.call(softcap=0.5)),
        ("sinks", "sinks", drawn.call(sinks=drawn.normal(2))),
        ("empty", "a row that attends to nothing", drawn.call(mask=drawn.allowed(2, 2, 3, 3, empty=1))),
        ("nan", "NaN in a value that is masked", drawn.call(v=nan, lengths=np.array([2, 2]))),
    )
    return tuple(
        Probe(f"gradients-{name}", f"gradients with {says}", replace(call, dout=dout, dlse=dlse))
        for name, says, call in calls
    )


def answer_of(mistakes: Iterable[Mistake], probe: Probe) -> Answer:
    """The answer of a function with these mistakes to a probe, rounded to the dtype of the call."""
    call = probe.call
    arguments = apply(mistakes, meaning(call, probe.conventions))
    outcome = forward(arguments, call.q, call.k, call.v)
    gradients = {}
    if call.dout is not None:
        gradients = backward(arguments, call.q, call.k, call.v, call.dout, call.dlse)
    with np.errstate(all="ignore"):
        return Answer(
            status="ok",
            out=_rounded(outcome.out, call.dtype),
            lse=_rounded(outcome.lse, arguments.real),
            gradients={role: _rounded(part, call.dtype) for role, part in gradients.items()},
            dtype=str(call.dtype),
        )


def _rounded(array: np.ndarray, dtype: Any) -> np.ndarray:
    return array.astype(dtype).astype(np.float64)


RIGHT = "(right)"  # the law itself
EVERYTHING, OUTPUT = "in all results", "in the output"
ORDINARY = "in the output, on ordinary numbers and without sinks"

# The mistakes whose answers are equal to rounding. Those of one class are named together; what is in the class of RIGHT
# is right there. tests/conformance/test_mistakes.py computes them.
CLASSES: Mapping[str, tuple[frozenset[str], ...]] = {
    EVERYTHING: (),
    OUTPUT: (frozenset({"mask-finite-fill", "mask-finite-fill-lowest"}),),
    ORDINARY: (
        frozenset({RIGHT, "mask-after-softmax-renormalized-or-0", "masked-nan-leaks", "masked-score-nan-leaks"}),
        frozenset(
            {
                "empty-row-nan",
                "mask-after-softmax-renormalized",
                "softmax-maximum-of-everything",
                "softmax-without-maximum",
            }
        ),
        frozenset(
            {
                "empty-row-mean",
                "mask-finite-added",
                "mask-finite-fill",
                "mask-finite-fill-100",
                "mask-finite-fill-1e4",
                "mask-finite-fill-lowest",
            }
        ),
    ),
}


@dataclass(frozen=True, eq=False)
class Row:
    """One mistake, or two, on all probes.

    rejected: the ids of the probes whose answer is not within the bound · named: the mistakes that explain them
    """

    mistakes: tuple[Mistake, ...]
    rejected: tuple[str, ...]
    named: tuple[str, ...]


def matrix(catalog: Sequence[Mistake] = CATALOG) -> Iterator[Row]:
    """Every mistake on every probe."""
    for mistake in catalog:
        yield row((mistake,))


def pairs(count: int, seed: int = 0) -> Iterator[Row]:
    """Random pairs of mistakes on every probe."""
    rng, usable = np.random.default_rng(seed), [mistake for mistake in CATALOG if not mistake.alone]
    for _ in range(count):
        first, second = sorted(rng.choice(len(usable), 2, replace=False))
        yield row((usable[first], usable[second]))


def row(mistakes: tuple[Mistake, ...]) -> Row:
    """A function with these mistakes on every probe."""
    rejected: list[str] = []
    named: dict[str, None] = {}
    for conventions in CONVENTIONS:
        failed: list[ObservedAnswer] = []
        passed: list[ObservedAnswer] = []
        for probe in probes():
            if probe.conventions is conventions:
                seen, good = _seen(mistakes, probe)
                (passed if good else failed).append(seen)
        rejected += [seen.id for seen in failed]
        for found in explain(failed, passed):
            named |= dict.fromkeys(mistake.name for mistake in found.mistakes)
    return Row(mistakes, tuple(rejected), tuple(named))


def _seen(mistakes: Sequence[Mistake], probe: Probe) -> tuple[ObservedAnswer, bool]:
    """What a function with these mistakes answers to a probe, and whether that is right."""
    answer, right = answer_of(mistakes, probe), _expected(probe)
    good = right.judge(answer).right
    if good and answer.gradients:
        good = compared_gradients(probe.call, probe.conventions, answer).right
    return ObservedAnswer(probe.id, probe.call, answer, probe.conventions, right.bounds._asdict()), good


@cache
def _expected(probe: Probe) -> Expected:
    return expected(probe.call, probe.conventions)


def lines(count: int = 100, catalog: Sequence[Mistake] = CATALOG) -> Iterator[str]:
    """The matrix as lines of a table, and the figures of single mistakes and of `count` random pairs."""
    ids = [probe.id for probe in probes()]
    for number, probe in enumerate(probes(), 1):
        yield f"{number:2d} {probe.id}: {probe.says}"
    width = max(len(mistake.name) for mistake in catalog)
    yield ""
    yield f"{'':<{width}} " + " ".join(f"{number:2d}" for number in range(1, len(ids) + 1))
    rows = []
    for each in matrix(catalog):
        rows.append(each)
        marks = " ".join(" ×" if name in each.rejected else " ·" for name in ids)
        yield f"{each.mistakes[0].name:<{width}} {marks}{'' if _is_named(each) else '  not named'}"
    yield "× rejected · within the bound"
    yield ""
    yield f"mistakes alone: {len(rows)}, rejected {_share(rows, _is_rejected)}, named {_share(rows, _is_named)}"
    two = [each for each in pairs(count) if each.rejected]
    yield f"random pairs: {count}, of which {len(two)} rejected, one of the two named {_share(two, _is_named)}"
    for words, groups in CLASSES.items():
        for group in groups:
            yield f"equal {words}: {', '.join(sorted(group))}"


def _is_rejected(row: Row) -> bool:
    return bool(row.rejected)


def _is_named(row: Row) -> bool:
    """Whether a mistake is named, or one of the same class."""
    names = {mistake.name for mistake in row.mistakes}
    alike = set().union(*(group for group in CLASSES[EVERYTHING] if group & names), names)
    return bool(alike & set(row.named))


def _share(rows: Sequence[Row], has: Callable[[Row], bool]) -> str:
    found = sum(map(has, rows))
    return f"{found} ({100 * found / max(len(rows), 1):.1f} %)"
