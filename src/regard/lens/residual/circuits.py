"""`circuits`: the tokens that heads match and write by their matrices, and how the heads of two layers compose."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ...common.errors import refuse
from ...common.text.units import counted
from ..interventions.subject import Subject
from ..runs.call import Call
from .stream import Stream

Ranked = list[tuple[str | int, float]]


@dataclass(frozen=True, eq=False, repr=False)
class Circuits:
    """The matrices of a model's heads between its tokens; `regard.circuits` makes it.

    Args:
        stream: the residual stream of the text with which the matrices were found.
        calls: the attention calls, by layer.

    Examples:
        >>> import torch, transformers, regard as rg
        >>> config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=9)
        >>> found = rg.circuits(transformers.GPT2LMHeadModel(config).eval(), inputs=torch.arange(5)[None])
        >>> len(found.writes(0, 1, 3, count=2)), len(found.matches(1, 0, 3))
        (2, 9)
    """

    stream: Stream
    calls: tuple[Call, ...]

    def __repr__(self) -> str:
        return f"<Circuits of {type(self.stream.model).__name__}: {counted(len(self.calls), 'layer')}>"

    def writes(self, layer: int, head: int, token: str | int, count: int = 10) -> Ranked:
        """The tokens whose logits a head raises most where it attends to a token.

        W_U norm(W_o W_v norm(e)), the last norm without its divisor

        Args:
            layer: the number of the attention call.
            head: the query head.
            token: the token that the head attends to, as text or number.
            count: how many tokens are returned.

        Returns:
            (token, what is added to its logit, up to a factor), the largest first.

        Raises:
            Refused: matrices that are not known, and tokens that the vocabulary does not have.
        """
        call, stream = self._call(layer, head), self.stream
        x = self._read(call, torch.tensor([stream.number(token)]))[0]
        written = torch.from_numpy((_matrix(call, "v")[head] @ x) @ self._folded(call, "o")[head])
        return self._ranked(stream.head.weight.detach().double().cpu() @ stream.end.applied(written), count)

    def matches(self, layer: int, head: int, token: str | int, count: int = 10) -> Ranked:
        """The tokens that a head scores highest as keys of a token, without positions: of a layer that rotates q and k,
        at the same position.

        scale · (W_q norm(e) + b_q) · (W_k norm(e) + b_k)

        Args:
            layer: the number of the attention call.
            head: the query head.
            token: the token of the row, as text or number.
            count: how many tokens are returned.

        Returns:
            (token, its score), the largest first.

        Raises:
            Refused: matrices that are not known, as those of q and k that the layer normalizes.
        """
        call, stream = self._call(layer, head), self.stream
        x = self._read(call, torch.arange(len(stream.head.weight)))
        q, k = (x @ _matrix(call, name)[head].T + _bias(call, name, head) for name in ("q", "k"))
        return self._ranked(torch.from_numpy(call.scale * (k @ q[stream.number(token)])), count)

    def composition(self, kind: Literal["q", "k", "v"] = "k") -> np.ndarray:
        """How much of what a head writes the heads of later layers read as q, k or v.

        |R W_o W_v| / (|R| |W_o W_v|) in Frobenius norms, where R is W_qᵀ W_k of the later head for "k", W_kᵀ W_q for
        "q" and W_o W_v for "v"; the gains of norms are part of the matrices that read.

        Args:
            kind: "q", "k" or "v".

        Returns:
            (layers, heads, layers, heads): the later head first; NaN where the other one is not earlier.

        Raises:
            Refused: matrices that are not known, as those of q and k that the layer normalizes.
        """
        pairs = {"q": ("k", "q"), "k": ("q", "k"), "v": ("o", "v")}
        if kind not in pairs:
            raise refuse("circuits", "no such composition", f"{kind!r}", "q, k or v", "pass one of them")
        outer, inner = pairs[kind]
        reads = [(self._folded(call, outer), self._folded(call, inner)) for call in self.calls]
        writes = [(self._folded(call, "o"), self._folded(call, "v")) for call in self.calls]
        sizes = [call.shape[0] for call in self.calls]
        found = np.full((len(sizes), max(sizes), len(sizes), max(sizes)), np.nan)
        for later, earlier in itertools.combinations(range(len(sizes) - 1, -1, -1), 2):
            (a, b), (c, d) = reads[later], writes[earlier]
            inner = np.einsum("hid,gjd->hgij", b, c)
            squares = np.einsum("hij,hgjk,gkl,hgil->hg", _gram(a), inner, _gram(d), inner, optimize=True)
            whole = np.multiply.outer(_squares(a, b), _squares(c, d))
            found[later, : len(a), earlier, : len(c)] = np.sqrt(np.maximum(squares, 0) / whole)
        return found

    def _call(self, layer: int, head: int) -> Call:
        if not 0 <= layer < len(self.calls) or not 0 <= head < self.calls[layer].shape[0]:
            sizes = f"layers 0 to {len(self.calls) - 1}, heads 0 to {self.calls[0].shape[0] - 1}"
            raise refuse("circuits", "no such head", f"layer {layer}, head {head}", sizes, "count from 0")
        return self.calls[layer]

    def _read(self, call: Call, numbers: torch.Tensor) -> np.ndarray:
        """(tokens, d) what the layer reads of the embeddings of tokens: they go through its norm."""
        with torch.no_grad():
            x = self.stream.embedding(numbers.to(self.stream.head.weight.device))
            return self.stream.norm_before(call).module(x).double().cpu().numpy()

    def _folded(self, call: Call, name: str) -> np.ndarray:
        """(H, D, d) the matrix between heads and the stream, with the gain of the norm that is between them."""
        matrix = torch.from_numpy(_matrix(call, name))
        if name != "o":
            return self.stream.norm_before(call).folded(matrix).numpy()
        return next(block.norm for block in self.stream.blocks.values() if call.name in block).applied(matrix).numpy()

    def _ranked(self, numbers: torch.Tensor, count: int) -> Ranked:
        best = numbers.topk(min(count, len(numbers)))
        words = self.stream.subject.words
        spell = (lambda number: words.decode([number])) if words is not None else int
        return [
            (spell(number), value) for number, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]


def circuits(model: Any = None, text: str | None = None, *, inputs: Any = None, tokenizer: Any = None) -> Circuits:
    """The matrices of a model's heads: which tokens each would match, which it would write, and how heads compose.

    QK: x_i W_qᵀ W_k x_j, OV: W_U W_o W_v x_j

    The matrices are those that compute the text, found by what goes in and out of them; positions are left out.

    Args:
        model: a folder, a hub id, or a loaded transformers model that predicts tokens.
        text: any text, for models with a tokenizer.
        inputs: the arguments of the model, with a batch of 1, in the place of the text.
        tokenizer: the tokenizer of a loaded model.

    Returns:
        The circuits.

    Raises:
        Refused: the models that `contributions` does not take.

    Source:
        Elhage et al. 2021, A Mathematical Framework for Transformer Circuits.

    Examples:
        >>> import torch, transformers, regard as rg
        >>> config = transformers.GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=9)
        >>> found = rg.circuits(transformers.GPT2LMHeadModel(config).eval(), inputs=torch.arange(5)[None])
        >>> found.composition("v").shape
        (2, 2, 2, 2)
    """
    stream = Stream(Subject.of(model, text, None, inputs, tokenizer, "circuits"))
    return Circuits(stream, tuple(call for block in stream.blocks.values() for call in block.values()))


def _projection(call: Call, name: str) -> Any:
    found = None if call.projections is None else (call.projections.known | dict(call.projections.rotated)).get(name)
    if found is None:
        why = "" if call.projections is None else call.projections.missing.get(name, "")
        expected, fix = f"a product with W_{name}", "use the methods that read other matrices"
        raise refuse("circuits", f"W_{name} is not known", f"{call.name}: {why}", expected, fix)
    return found


def _matrix(call: Call, name: str) -> np.ndarray:
    """W_q, W_k and W_v of each query head, (H, D, d); W_oᵀ, (H, E, d)."""
    w = np.asarray(_projection(call, name).w, np.float64)
    H = call.shape[0]
    return w.T.reshape(H, -1, len(w)) if name == "o" else np.repeat(w, H // len(w), 0)


def _bias(call: Call, name: str, head: int) -> Any:
    b = _projection(call, name).b
    return 0.0 if b is None else np.asarray(b, np.float64)[head * len(b) // call.shape[0]]


def _gram(a: np.ndarray) -> np.ndarray:
    """a aᵀ of each head."""
    return a @ a.swapaxes(-1, -2)


def _squares(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|aᵀ b|² of each head (H,), from products of the depth of a head only."""
    return (_gram(a) * _gram(b)).sum((-1, -2))
