"""Case: one thing that must hold; its arrays, drawn from a seed, within what the function takes."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...common.dtypes import FLOATS
from ...laws.call import Answer, Call, shape_of
from ..conventions.fields import Adapter
from ..conventions.layouts import resized

LEVELS = ("runs", "textbook", "edges", "gradients", "isolation", "scale")


@dataclass(frozen=True, eq=False, kw_only=True)
class Case:
    """One thing that must hold.

    name: such as "empty-row-float32" · law: the number of the law; 0 for what comes before the laws · level · says:
    what must hold, a sentence · call: the call · optional: a function may refuse this call with an exception ·
    check: how a `Judge` judges it; None: the answer is compared with the law
    """

    name: str
    law: int
    level: int
    says: str
    call: Call
    optional: bool = False
    check: Callable[[Case, Any], Result] | None = None

    @property
    def id(self) -> str:
        """Such as "law-05[empty-row-float32]"."""
        return f"law-{self.law:02d}[{self.name}]"


@dataclass(frozen=True, eq=False, kw_only=True)
class Result:
    """What came out of a case.

    status: "pass"; "fail"; "refused", with an exception, where a function may; "absent", if the function has no such
    argument; "expected" to fail, as declared; "unexpected-pass" · call: the one that was judged · answer: of the
    function; None if the call could not be made · ratio: the largest |error| / bound; None where nothing was compared ·
    words: what was seen · grade: "bits" or "rounding", where results of two calls are compared · also: the calls and
    answers that were compared with each other
    """

    case: Case
    status: str
    call: Call
    answer: Answer | None = None
    ratio: float | None = None
    words: str = ""
    grade: str | None = None
    also: tuple[tuple[Call, Answer], ...] = ()


@dataclass(frozen=True)
class Limits:
    """What a function takes, read from its adapter and from two calls: `rectangular`, whether Q ≠ K; `wide`, whether
    D ≠ E.
    """

    adapter: Adapter
    rectangular: bool = True
    wide: bool = True

    @property
    def batch(self) -> bool:
        """Whether there can be more than one batch entry."""
        return "B" in self.adapter.layout or self.packed

    @property
    def packed(self) -> bool:
        """Whether rows of all batch entries are in one axis."""
        return self.adapter.layout == "THD" and self.takes("cu_seqlens_q")

    @property
    def heads(self) -> int | None:
        """How many heads there can be; None for any number."""
        layout = self.adapter.layout
        if "H" in layout or (layout == "BSD" and self.takes("heads")):
            return None
        return self.adapter.heads or 1

    @property
    def grouped(self) -> bool:
        """Whether query heads can share key heads."""
        return self.heads != 1 and self.adapter.groups != "none"

    @property
    def dtype(self) -> str:
        """The dtype of most cases."""
        return self.adapter.dtypes[0] if self.adapter.dtypes else "float32"

    @property
    def returns_lse(self) -> bool:
        """Whether the function returns lse, always or if requested."""
        return self.takes("return_lse") or "lse" in str(self.adapter.returns)

    @property
    def shares_mask(self) -> bool:
        """Whether one parameter takes masks and biases, or neither has one."""
        return self.adapter.parameters.get("mask") == self.adapter.parameters.get("bias")

    def window(self, before: int) -> tuple[int, int]:
        """A window of so many keys before a row, and after it if the function counts both sides."""
        return before, before if self.adapter.window == "both-sides" else 0

    def takes(self, role: str) -> bool:
        """Whether the function has a parameter for a role."""
        return role in self.adapter.parameters

    def sizes(self, **wanted: Any) -> dict[str, Any]:
        """Sizes near the wanted ones that the function takes; B, H, G, Q, K, D, E and dtype by name."""
        found: dict[str, Any] = {"B": 2, "H": 4, "Q": 5, "K": 7, "D": 8, "dtype": self.dtype} | wanted
        found.setdefault("G", found["H"])
        if not self.batch:
            found["B"] = min(found["B"], 1)
        if self.heads is not None:
            found["H"] = self.heads
        elif "alibi" in self.adapter.always and found["H"]:  # implementations differ about other numbers of slopes
            found["H"] = 1 << (found["H"].bit_length() - 1)
        found["G"] = min(found["G"], found["H"]) if self.grouped else found["H"]
        if found["G"] and found["H"] % found["G"]:
            found["G"] = 1 if self.grouped else found["H"]
        if not self.rectangular:
            found["Q"] = found["K"] = max(found["Q"], found["K"])
        found.setdefault("E", found["D"])
        if not self.wide:
            found["E"] = found["D"]
        return found


class Draw:
    """Draws the arrays of the case with a name, in sizes near the wanted ones that the function takes. Scores have a
    deviation of about 2, so that weights differ.
    """

    def __init__(self, limits: Limits, seed: int, name: str, sizes: Mapping[str, Any] | None = None):
        self.limits = limits
        self.rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
        self.sizes = limits.sizes(**(sizes or {}))

    @property
    def shape(self) -> tuple[int, ...]:
        """The canonical shape of a mask that the function takes, with all axes if it does."""
        shapes = self.limits.adapter.mask_shapes
        with_rows = next((each for each in shapes if "Q" in each), (*shapes, "BHQK")[0])
        return resized("BHQK" if "BHQK" in shapes else with_rows, self.sizes)

    def arrays(self) -> dict[str, Any]:
        """q, k and v."""
        size = self.sizes.get("size", 1.4)  # the deviation of the entries of q and k
        kind = FLOATS[self.sizes["dtype"]].numpy
        return {
            name: (deviation * self.rng.standard_normal(shape_of(name, self.sizes))).astype(np.float32).astype(kind)
            for name, deviation in (("q", size), ("k", size), ("v", 1.0))
        }

    def mask(self, axes: str = "", share=0.6) -> np.ndarray:
        """A random mask in which every row may attend to something, and no row to everything where that is possible."""
        shape = resized(axes, self.sizes) if axes else self.shape
        mask = self.rng.random(shape) < share
        K = shape[-1]
        if K:
            np.put_along_axis(mask, self.rng.integers(0, K, shape[:-1])[..., None], True, -1)
        return mask

    def bias(self, axes: str = "") -> np.ndarray:
        """A random bias in float32."""
        shape = resized(axes, self.sizes) if axes else self.shape
        return self.rng.standard_normal(shape).astype(np.float32)

    def sinks(self) -> np.ndarray:
        """Random sinks in float32."""
        return self.rng.standard_normal(self.sizes["H"]).astype(np.float32)

    def call(self, **fields: Any) -> Call:
        """A call with these fields of `Call`."""
        return Call(**(self.arrays() | fields))


@dataclass(frozen=True)
class Maker:
    """Makes the cases of one level."""

    limits: Limits
    seed: int
    level: int

    def draw(self, name: str, sizes: Mapping[str, Any] | None = None) -> Draw:
        """What draws the arrays of a case."""
        return Draw(self.limits, self.seed, name, sizes)

    def case(
        self,
        law: int,
        says: str,
        name: str,
        sizes: Mapping[str, Any] | None = None,
        *,
        draw: Draw | None = None,
        optional: bool = False,
        check: Callable[[Case, Any], Result] | None = None,
        **fields: Any,
    ) -> Case:
        """A case. draw: where other arrays were drawn already; fields: those of its call, or functions of the draw."""
        draw = draw or self.draw(name, sizes)
        call = draw.call(**{role: value(draw) if callable(value) else value for role, value in fields.items()})
        return Case(name=name, law=law, level=self.level, says=says, call=call, optional=optional, check=check)
