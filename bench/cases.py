"""Cases: the problems that are timed, with each rule as an expression and as a function of positions; and Result."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from functools import cached_property
from typing import Any

import numpy as np

from regard.common.dtypes import FLOATS
from regard.common.errors import did_you_mean, refuse
from regard.language import masks, scores
from regard.language.expr import Expr

from .interleave import Burst

__all__ = ["CAP", "CASES", "CELLS", "Case", "Inputs", "Result", "choose", "shrunk"]

CAP = 30.0  # of the softcap
SMALL = tuple(row.name for row in sorted(FLOATS.values(), key=lambda row: row.digits) if row.bits == 16)
CELLS = 512  # of the map
CHUNK = 1 << 22  # pairs per step while a dense mask is made


@dataclass(frozen=True)
class Case:
    """One call of attention: B batch entries, H query heads, G key heads, Q rows, `keys` keys (0: Q), depth D = E.

    pattern: full, causal, window, documents or prefix. reach: the window, the prefix, or the mean length of a document.
    twist: the score function, softcap or alibi. dtype: float32, float16 or bfloat16.
    task: forward; gradients (forward and backward); decode (a forward limited by memory bandwidth); statistics (of the
    weights: entropy, distance, the weight that each key receives, and a map of CELLS × CELLS).
    """

    kind: str
    Q: int
    D: int = 64
    pattern: str = "full"
    reach: int = 0
    twist: str | None = None
    B: int = 1
    H: int = 8
    G: int = 8
    keys: int = 0
    dtype: str = "float32"
    task: str = "forward"

    @property
    def K(self) -> int:
        return self.keys or self.Q

    @property
    def name(self) -> str:
        length = f"{self.K // 1024}k" if self.K % 1024 == 0 else str(self.K)
        return "-".join([self.kind, length, f"d{self.D}", *([] if self.dtype == "float32" else [self.dtype])])

    @property
    def unit(self) -> str:
        """The unit of `Inputs.work` per second."""
        return "GB/s" if self.task == "decode" else "GFLOP/s"

    def __str__(self) -> str:
        heads = f"{self.H} head{'s' * (self.H > 1)}" if self.H == self.G else f"{self.H} heads over {self.G}"
        batch = f"{self.B} × " if self.B > 1 else ""
        reach = f" {self.reach}" if self.reach else ""
        twist = f", {self.twist}" if self.twist else ""
        rows = f"{self.Q} rows" if self.Q > 1 else "1 row"
        over = f" over {self.keys} keys" if self.keys else ""
        task = {"gradients": ", with gradients", "statistics": ", statistics"}.get(self.task, "")
        return f"{batch}{heads}, {rows}{over}, depth {self.D}, {self.dtype}, {self.pattern}{reach}{twist}{task}"

    def allows(self, query: Any, key: Any, document: Any) -> Any:
        """True where `query` attends to `key`; positions are NumPy arrays or tensors. Not for the full pattern."""
        rule = key <= query
        if self.pattern == "window":
            return rule & (query - key < self.reach)
        if self.pattern == "documents":
            return rule & (document[query] == document[key])
        if self.pattern == "prefix":
            return rule | (key < self.reach)
        return rule

    def inputs(self, seed: int = 0) -> Inputs:
        """Random arrays, the same for every engine and in every run."""
        random = np.random.default_rng(seed)
        q, dout = random.standard_normal((2, self.B, self.H, self.Q, self.D), dtype=np.float32)
        k, v = random.standard_normal((2, self.B, self.G, self.K, self.D), dtype=np.float32)
        lengths = random.integers(1, 2 * max(self.reach, 1), size=self.Q)  # more than enough, mean `reach`
        document = np.repeat(np.arange(self.Q), lengths)[: self.Q]
        q, k, v, dout = (array.astype(FLOATS[self.dtype].numpy, copy=False) for array in (q, k, v, dout))
        return Inputs(case=self, q=q, k=k, v=v, dout=dout, document=document, slopes=scores.alibi_slopes(self.H))


@dataclass(frozen=True)
class Inputs:
    """The arrays of a case, q, dout (B, H, Q, D) · k, v (B, G, K, D), and its rule in the formats of the engines."""

    case: Case
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    dout: np.ndarray
    document: np.ndarray
    slopes: np.ndarray

    @cached_property
    def mask(self) -> Expr | None:
        """The mask as an expression of regard."""
        rules = {
            "full": lambda: None,
            "causal": masks.causal,
            "window": lambda: masks.window(self.case.reach),
            "documents": lambda: masks.documents(ids=self.document) & masks.causal(),
            "prefix": lambda: masks.prefix(self.case.reach),
        }
        return rules[self.case.pattern]()

    @cached_property
    def score(self) -> Expr | None:
        """The score as an expression of regard."""
        if self.case.twist == "softcap":
            return scores.softcap(CAP)
        return scores.alibi(self.slopes) if self.case.twist == "alibi" else None

    @cached_property
    def allowed(self) -> np.ndarray:
        """The mask as booleans (Q, K), for engines that do not support rules."""
        if self.case.pattern == "full":
            return np.ones((self.case.Q, self.case.K), np.bool_)
        return np.concatenate(list(self.bands()))

    def bands(self) -> Iterator[np.ndarray]:
        """The mask as booleans, some rows at a time."""
        position = np.arange(self.case.Q, dtype=np.int32)
        step = max(1, CHUNK // self.case.Q)
        for row in range(0, self.case.Q, step):
            yield self.case.allows(position[row : row + step, None], position[None], self.document)

    @cached_property
    def additive(self) -> np.ndarray:
        """The additive mask (1, 1 or H, Q, K): −inf where masked, and ALiBi's bias."""
        bias = np.zeros((1, 1), np.float32)
        if self.case.twist == "alibi":
            position = np.arange(self.case.Q, dtype=np.float32)
            bias = -self.slopes[:, None, None] * abs(position[:, None] - position)
        return np.where(self.allowed, bias, np.float32(-np.inf)).reshape(1, -1, self.case.Q, self.case.Q)

    @cached_property
    def work(self) -> int:
        """Useful operations: two products for every allowed pair of row and key (seven with gradients), none for masked
        pairs; when decoding, the bytes of keys and values. Statistics compute the scores twice: two products as well.
        """
        case = self.case
        if case.task == "decode":
            return self.k.nbytes + self.v.nbytes
        pairs = case.Q * case.K if case.pattern == "full" else sum(map(np.count_nonzero, self.bands()))
        return pairs * 2 * case.D * (7 if case.task == "gradients" else 2) * case.B * case.H


@dataclass(frozen=True)
class Result:
    """The result of one engine on one case: a line of the report.

    status: timed; wrong (the result differs from float64: not timed, not ranked); refused (the engine does not support
    the case); failed. note: the reason. rate: useful work per second, in the unit of the case. ratio: the time of the
    fastest peer divided by this time.
    """

    case: str
    engine: str
    status: str
    note: str = ""
    form: str = ""
    error: float = math.nan
    seconds: float = math.nan
    rate: float = math.nan
    ratio: float = math.nan
    bursts: list[Burst] = field(default_factory=list)


CASES = (
    *(Case("dense", rows, depth) for rows in (512, 2048, 8192) for depth in (64, 128)),
    *(Case("dense", 2048, depth, dtype=dtype) for dtype in SMALL for depth in (64, 128)),
    *(Case("causal", rows, depth, "causal") for rows in (512, 2048, 8192) for depth in (64, 128)),
    *(Case("causal", 2048, depth, "causal", dtype=dtype) for dtype in SMALL for depth in (64, 128)),
    Case("grouped", 2048, pattern="causal", H=16, G=4),
    Case("window", 8192, pattern="window", reach=256),
    Case("documents", 8192, pattern="documents", reach=512),
    Case("alibi", 4096, pattern="causal", twist="alibi"),
    Case("softcap", 4096, pattern="causal", twist="softcap"),
    Case("prefix", 4096, pattern="prefix", reach=512),
    Case("short", 64),
    Case("batch", 128, B=16, H=12, G=12),
    *(
        Case(f"train-{name}", 2048, depth, pattern, dtype=dtype, task="gradients")
        for name, pattern in (("dense", "full"), ("causal", "causal"))
        for dtype in ("float32", "bfloat16")
        for depth in (64, 128)
    ),
    Case("train-window", 4096, pattern="window", reach=256, task="gradients"),
    *(
        Case(f"decode-{entries}", 1, 128, B=entries, H=32, G=8, keys=8192, dtype=dtype, task="decode")
        for entries in (1, 8)
        for dtype in ("float32", "bfloat16")
    ),
    Case("statistics", 32768, pattern="causal", H=1, G=1, task="statistics"),
)


def shrunk(case: Case, rows: int) -> Case:
    """The same case with at most `rows` rows or keys, its window, prefix or documents reduced in proportion."""
    if rows >= case.K:
        return case
    if case.keys:
        return replace(case, keys=rows)
    return replace(case, Q=rows, reach=case.reach and max(1, case.reach * rows // case.Q))


def choose(patterns: list[str], known: list[str], what: str) -> list[str]:
    """The known names that match a list of names, kinds or shell-style patterns, in the order of `known`; all of them
    for an empty list.
    """
    chosen = set()
    for pattern in patterns:
        found = [name for name in known if fnmatch(name, pattern) or name.split("-")[0] == pattern]
        if not found:
            kinds = dict.fromkeys(name.split("-")[0] for name in known)
            raise refuse(
                "bench",
                f"no such {what}",
                repr(pattern),
                "a kind, a name, or a pattern with *",
                did_you_mean(pattern, kinds),
            )
        chosen.update(found)
    return [name for name in known if name in chosen or not patterns]
