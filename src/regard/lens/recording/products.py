"""The matrix products of a running torch model, compared with the q, k, v and output of each recorded call."""

from __future__ import annotations

import dataclasses
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from ...common.arrays import is_tensor, read_array
from ..runs.call import Call
from ..runs.projections import LayerProjections, Projection, equal, heads_from

RECENT = 4  # products before a call that are compared with its q, k and v; earlier ones are of other layers
ROWS, FEWEST = 16, 4  # rows whose lengths are compared, and the smallest number for which they mean anything
STEADY = 0.005  # relative tolerance for a constant ratio of lengths, which allows for 16-bit rounding
WIDEST = 1 << 16  # columns of a product that can be one of queries or keys
Rows = Callable[[torch.Tensor], np.ndarray | None]
NO_PRODUCT = "{name} is not the product of the layer’s input with one matrix: it may be rotated, normalized or scaled"
NO_INPUT = "the input of the layer was not recorded"
OTHER_TEXT = "{name} is computed from another text, which is not the input of this layer"
NO_OUTPUT = "no product of the model takes the outputs of all heads, one after another"
CHANGED = "the layer changes the product with W_o before it is its output"
UNEQUAL = "the product with W_o is not what the model computed, within the rounding of its dtype"


class Product(NamedTuple):
    """A product with a matrix: its input, the matrix (N, M), the bias and the result; the first rows of it, if kept."""

    x: torch.Tensor
    w: torch.Tensor
    b: torch.Tensor | None
    y: torch.Tensor
    first: tuple[np.ndarray, ...] = ()

    @property
    def unit(self) -> float:
        return torch.finfo(self.y.dtype).eps / 2

    @property
    def projection(self) -> Projection:
        return Projection(numbers(self.w), None if self.b is None else numbers(self.b))


class Products:
    """The last products of the model. Their inputs and results are not held, which would cost memory."""

    def __init__(self) -> None:
        self.recent: deque[Product] = deque(maxlen=RECENT)

    def add(self, name: str, args: tuple, kwargs: Mapping[str, Any], out: Any) -> Product | None:
        """The product, if the torch function computes one."""
        found = _product(name, args, kwargs, out)
        if found is not None:
            nothing = found.y.new_empty(0)
            self.recent.append(found._replace(x=nothing, y=nothing, first=_first_rows(found.y)))
        return found

    def factor(self, vectors: np.ndarray) -> float | None:
        """How many times as long the vectors (H, Q, D) of head 0 are as those that one of the products computed.

        A head is D adjacent columns of a product; rotary positions keep the lengths. None where no product explains
        them: they are normalized, or all of one length, or of another text.
        """
        actual = np.linalg.norm(np.asarray(vectors[0, :ROWS], np.float64), axis=-1)
        if len(actual) < FEWEST or not np.isfinite(actual).all() or np.ptp(actual) <= 4 * STEADY * actual.max():
            return None
        D = vectors.shape[2]
        for rows in (rows for product in self.recent for rows in product.first):
            if rows.shape[1] % D or len(rows) != len(actual):
                continue
            with np.errstate(all="ignore"):
                ratios = actual[:, None] / np.linalg.norm(rows.reshape(len(rows), -1, D), axis=-1)
                steady = np.ptp(ratios, axis=0) <= STEADY * ratios.mean(0)
            if steady.any():
                return float(ratios[:, steady.argmax()].mean())
        return None

    def inputs(self, call: Call) -> LayerProjections:
        """W_q, W_k and W_v of a call, among the products since the previous one."""
        found: dict[str, Any] = {}
        missing: dict[str, str] = {}
        turned: dict[str, Projection] = {}
        wide = None if call.x is None else call.x.shape[-1]
        products = [(each.projection, each.unit) for each in reversed(self.recent) if each.w.shape[1] == wide]
        self.recent.clear()
        for name in ("q", "k", "v"):
            heads = getattr(call, name)
            if call.x is None:
                missing[name] = NO_INPUT
            elif not call.aligned and name != "q":
                missing[name] = OTHER_TEXT.format(name=name)
            else:
                made = (heads_from(call.x, product, heads, unit) for product, unit in products)
                one, rotated = next((each for each in made if each is not None), (None, False))
                if one is None or rotated:
                    missing[name] = NO_PRODUCT.format(name=name)
                if one is not None and not (rotated and name == "v"):
                    (turned if rotated else found)[name] = one
        return LayerProjections(**found, missing={**missing, "o": NO_OUTPUT}, rotated=turned)


class Waiting:
    """A recorded call that waits for the product of its heads with W_o.

    weights (H, Q, K): the model's own, if it computes them · nth: its number among the calls of the layer in one pass ·
    rows(tensor) cuts the rows of the recorded batch entry from a tensor of the model, (Q, M), or None · known: W_q, W_k
    and W_v · first: those of the same call in the first pass of generation.
    """

    def __init__(
        self,
        call: Call,
        weights: np.ndarray | None,
        nth: int,
        *,
        rows: Rows,
        known: LayerProjections,
        first: LayerProjections | None,
    ):
        self.call, self.weights, self.nth = call, weights, nth
        self.rows, self.first = rows, first
        self.known = known.without_output(NO_OUTPUT)
        self.heads = None if call.out is None else np.asarray(call.out).swapaxes(0, 1).reshape(call.shape[1], -1)
        self.inside = False

    @property
    def found(self) -> LayerProjections:
        """The matrices that are known."""
        return self.known.without_output(CHANGED) if self.inside else self.known

    def compare(self, product: Product, inside: bool) -> None:
        """Takes the matrix as W_o if its input is the output of all heads, and its result is the product.

        inside: whether the attention module is still running; its own output is then compared as well.
        """
        if self.heads is None or self.known.o is not None or product.x.shape[-1] != self.heads.shape[1]:
            return
        x, y = self.rows(product.x), self.rows(product.y)
        if x is None or y is None or x.shape != self.heads.shape or not np.array_equal(x, self.heads, equal_nan=True):
            return
        matrix = product.projection
        first = None if self.first is None else self.first.o
        # The matrix of the first pass of generation was compared; it is not compared again for every token.
        same = first is not None and first.w.ctypes.data == matrix.w.ctypes.data and first.w.shape == matrix.w.shape
        if not same and not equal(y, x, matrix, product.unit):
            self.known = self.known.without_output(UNEQUAL)
            return
        missing = {name: why for name, why in self.known.missing.items() if name != "o"}
        self.known = dataclasses.replace(self.known, o=matrix, y=y.copy(), missing=missing)
        self.inside = inside

    def left(self, out: Any) -> None:
        """The attention module has returned: if W_o is inside it, its product is the output of the module."""
        first = out[0] if isinstance(out, tuple | list) and out else out
        if not self.inside:
            return
        self.inside, expected = False, self.known.y
        y = self.rows(first) if isinstance(first, torch.Tensor) else None
        if y is None or expected is None or not np.array_equal(y, expected, equal_nan=True):
            self.known = self.known.without_output(CHANGED)


def _first_rows(y: torch.Tensor) -> tuple[np.ndarray, ...]:
    """The first rows (rows, M) of the first batch entry, whichever of the first two axes is the batch."""
    if y.shape[-1] > WIDEST or y.ndim not in (2, 3) or not y.is_floating_point():
        return ()
    parts = (y[:ROWS],) if y.ndim == 2 else (y[0, :ROWS], y[:ROWS, 0])
    return tuple(part.double().cpu().numpy() for part in parts if len(part) >= FEWEST)


def _product(name: str, args: tuple, kwargs: Mapping[str, Any], out: Any) -> Product | None:
    """x, W (N, M), b and the result of torch.nn.functional.linear, torch.addmm, or x @ W."""
    if name not in ARGUMENTS:
        return None
    given: dict[str, Any] = {**dict(zip(ARGUMENTS[name], args, strict=False)), **kwargs}
    x, w, b = given.get("input"), given.get("weight"), given.get("bias")
    if not (isinstance(x, torch.Tensor) and isinstance(w, torch.Tensor) and isinstance(out, torch.Tensor)):
        return None
    w = w if name == "linear" else w.transpose(-1, -2)
    scaled = any(given.get(factor, 1) != 1 for factor in ("alpha", "beta"))
    if w.ndim != 2 or (b is not None and b.ndim != 1) or not w.is_floating_point() or scaled:
        return None
    return Product(x.detach(), w.detach(), None if b is None else b.detach(), out.detach())


ARGUMENTS = {
    "linear": ("input", "weight", "bias"),
    "addmm": ("bias", "input", "weight"),
    "matmul": ("input", "weight"),
    "__matmul__": ("input", "weight"),
    "mm": ("input", "weight"),
}


def numbers(value: Any) -> np.ndarray:
    """A tensor or array in CPU memory as NumPy; a view if it is there already."""
    return read_array(value.detach().cpu() if is_tensor(value) else value, "recording")
