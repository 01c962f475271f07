"""`Stream`: the residual stream of a model for one text, and how its end becomes logits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...common.errors import Refused, refuse
from ...models.language_model import LanguageModel
from ..interventions.blocks import block_of, hooked
from ..interventions.subject import Subject
from ..open_model import OpenModel
from ..recording.entry import of_module
from ..recording.keeper import RecordingOptions
from ..runs.call import Call
from ..runs.run import Run

CLOSE = 6  # units of the dtype: how far apart sums of the same numbers may be, relative to the length of the largest


@dataclass(frozen=True, eq=False)
class Norm:
    """A norm whose divisor is that of one text: x = a γ ∘ r + β, or with the mean of r subtracted from it.

    module: which computes it, or the identity · gain: γ (d,) · shift: β (d,) · centred: whether the
    mean is subtracted · factor: a of each row (T, 1)
    """

    module: torch.nn.Module
    gain: torch.Tensor
    shift: torch.Tensor
    centred: bool
    factor: torch.Tensor

    @classmethod
    def of(cls, module: torch.nn.Module, r: torch.Tensor, x: torch.Tensor, dtype: torch.dtype) -> Norm | None:
        """The norm that makes x (T, d) of r (T, d), by what the module makes of 0, of -1 and 1, and of 1; None if it
        does not make x.
        """
        probe = torch.ones(3, r.shape[-1], dtype=dtype, device=r.device)
        probe[0], probe[1, ::2] = 0, -1
        shift, signs, ones = module(probe).detach().double()
        centred = close(ones, shift, dtype, float(signs.norm()))
        norm = cls(module, (signs - shift) * probe[1], shift, centred, probe)
        scaled = norm.applied(r)
        factor = ((x - shift) * scaled).sum(-1, keepdim=True) / (scaled * scaled).sum(-1, keepdim=True)
        factor = factor.nan_to_num()  # the embedding of padding is 0
        return replace(norm, factor=factor) if close(factor * scaled + shift, x, dtype) else None

    def applied(self, r: torch.Tensor) -> torch.Tensor:
        """(…, d) γ ∘ r, or of r without its mean: x without β, up to the factor."""
        return self.gain.to(r) * (r - r.mean(-1, keepdim=True) if self.centred else r)

    def before(self, direction: torch.Tensor, row: int) -> torch.Tensor:
        """The direction (d,) in r whose product with r is that of `direction` with x - β, for one row."""
        return self.factor[row] * self.folded(direction)

    def folded(self, matrix: torch.Tensor) -> torch.Tensor:
        """A matrix (…, d) that is applied to x, as one that is applied to r, up to the factor."""
        found = self.gain.to(matrix) * matrix
        return found - found.mean(-1, keepdim=True) if self.centred else found


class Block(dict[str, Call]):
    """The attention calls of a block by layer. norm: what is applied to their sum before it is added."""

    norm: Norm


class Stream:
    """The residual stream of a model for one text.

    residuals: (T, d) float64 before the first block and after each · blocks: those that add to it, by name · end: the
    norm between the last block and the unembedding · head: the unembedding · logits:
    (T, vocabulary) what it gives, before the model scales or caps them · embedding: of tokens.
    """

    def __init__(self, subject: Subject):
        self.subject, self.model = subject, subject.model
        self.embedding, head = _ends(self.model)
        if not isinstance(getattr(head, "weight", None), torch.Tensor) or subject.ids is None:
            raise _refuse("the unembedding is not known", type(self.model).__name__, "load the model with its head")
        self.head, self.count = head, len(subject.ids)
        self.ends: dict[torch.nn.Module, tuple[Any, Any]] = {}
        self.alone: dict[torch.nn.Module, None] = {}  # modules without parts, of one argument
        self.names = {module: name for name, module in self.model.named_modules()}
        with torch.no_grad(), hooked(self.names, self._keep):
            options = RecordingOptions(values=True, hashed=False, matrices=1 << 62)
            if isinstance(self.model, LanguageModel):
                run = of_module(self.model, subject.args or subject.named, None, options)
                self.names.setdefault(head, "the tied unembedding")
                self.ends.setdefault(head, (self.ends[self.model.stack][1], self.ends[self.model][1]))
            else:
                run = OpenModel(self.model, options, tokenizer=subject.words)(None, inputs=subject.named)
        self.dtype = next(self.model.parameters()).dtype
        self.width = int(head.weight.shape[1])
        self.blocks, self.residuals = self._chain(run)
        x, self.logits = (
            self._rows(each, wide) for each, wide in zip(self.ends[head], (self.width, None), strict=True)
        )
        end = self._norm(x, self.residuals[-1])
        if end is None:
            raise _refuse("more than a norm is between the blocks and the unembedding", type(self.model).__name__)
        self.end = end

    def number(self, token: str | int) -> int:
        """The number of a token in the vocabulary."""
        return self.subject.number(token, len(self.head.weight))

    def predicted(self, residual: torch.Tensor) -> torch.Tensor:
        """(T, vocabulary) the logits that a stream (T, d) gives, with the divisor of its own norm."""
        dtype = self.head.weight.dtype
        x, ended = (self.end.module(each.to(dtype)).double() for each in (residual, self.residuals[-1]))
        after = self._rows(self.ends[self.head][0])
        # What the model multiplies by between the norm and the unembedding, as T5 does.
        factor = (after * ended).sum() / (ended * ended).sum()
        return self.head((factor * x).to(dtype)).double()

    def norm_before(self, call: Call) -> Norm:
        """The norm that makes the input of a layer. Refused: a layer that reads something else."""
        found = self._norm(self._rows(torch.from_numpy(np.asarray(call.x, np.float64)), self.width))
        if found is None:
            raise _refuse("what the layer reads is not the stream or a norm of it", call.name)
        return found

    def _norm(self, x: torch.Tensor, r: torch.Tensor | None = None, inside: str = "") -> Norm | None:
        """The norm that makes x, of r if that is known; the path of its module begins like this."""
        modules: list[Any] = [(torch.nn.Identity(), each, each) for each in (self.residuals if r is None else [r])]
        for module in self.alone:
            if self.names[module].startswith(inside):
                modules.append((module, *(self._rows(each, self.width) for each in self.ends[module])))
        for module, given, out in modules:
            if given is None or out is None or (r is not None and not close(given, r, self.dtype)):
                continue
            scale = (x * out).sum() / (out * out).sum()  # of what comes after it, as in T5
            if close(scale * out, x, self.dtype) and (norm := Norm.of(module, given, x, self.dtype)) is not None:
                return norm
        return None

    def _keep(self, module: torch.nn.Module, args: Any, named: dict[str, Any], out: Any) -> None:
        """Keeps the first input and output of a module."""
        self.ends[module] = _first([*args, *named.values()]), _first(out)
        if len(args) + len(named) == 1 and not any(module.children()):
            self.alone[module] = None

    def _rows(self, value: Any, width: int | None = None) -> Any:
        """(T, width) float64 of a tensor with a row for each token; None of others."""
        fits = isinstance(value, torch.Tensor) and value.is_floating_point() and value.ndim > 1
        if not fits or width not in (None, value.shape[-1]) or value.numel() != self.count * value.shape[-1]:
            return None
        return value.detach().reshape(-1, value.shape[-1]).double()

    def _chain(self, run: Run) -> tuple[dict[str, Block], list[torch.Tensor]]:
        """The blocks that add to one stream, and the stream before and after each."""
        blocks: dict[str, Block] = {}
        for call in run.calls:
            blocks.setdefault(block_of(call.name), Block())[call.name] = call
        last = list(blocks)[-1].rpartition(".")[0]
        siblings = {f"{last}.{name}": module for name, module in self.model.get_submodule(last).named_children()}
        blocks = {name: blocks.get(name, Block()) for name, module in siblings.items() if module in self.ends}
        residuals: list[torch.Tensor] = []
        for name, block in blocks.items():
            before, after = (self._rows(each, self.width) for each in self.ends[siblings[name]])
            if before is None or after is None or (residuals and not close(residuals[-1], before, self.dtype)):
                raise _refuse("blocks do not add to one stream", name)
            if block:
                block.norm = self._added(name, block, after - before, float(after.norm()))
            residuals += [before, after] if not residuals else [after]
        return blocks, residuals

    def _added(self, name: str, block: Block, change: torch.Tensor, length: float) -> Norm:
        """The norm that is applied to what attention adds; length: of the stream that it is added to.
        Refused: attention that is not added.
        """
        y: Any = 0.0
        for call in block.values():
            if call.projections is None or call.projections.o is None or call.projections.y is None:
                why = "the run has no matrices" if call.projections is None else call.projections.missing.get("o", "")
                raise _refuse("the output projection is not known", f"{call.name}: {why}")
            y = y + torch.from_numpy(np.asarray(call.projections.y, np.float64)).to(change)
        inside = f"{name}."
        ends = [out for module, (_, out) in self.ends.items() if self.names[module].startswith(inside)]
        outputs = [rows for out in ends if (rows := self._rows(out, self.width)) is not None]

        def added(part: torch.Tensor) -> bool:
            return any(close(part + other, change, self.dtype, length) for other in (0.0, *outputs))

        for found in (self._norm(normed, y, inside) for normed in (y, *outputs) if added(normed)):
            if found is not None:
                return found
        raise _refuse("the block scales what attention adds, or does not add it", name)


def _ends(model: Any) -> tuple[Any, Any]:
    """The embedding of tokens and the unembedding; None where the model does not say."""
    if not isinstance(model, LanguageModel):
        read, write = (getattr(model, f"get_{name}_embeddings", lambda: None) for name in ("input", "output"))
        return read(), write()
    tied = torch.nn.utils.skip_init(torch.nn.Linear, *model.embed.tokens.weight.shape[::-1], bias=False)
    tied.weight = model.embed.tokens.weight
    return model.embed.tokens, tied if model.output is None else model.output


def close(a: torch.Tensor, b: torch.Tensor, dtype: torch.dtype, among: float = 0.0) -> bool:
    """Whether two arrays are equal to rounding in this dtype, or in float32, in which norms of float64 models are
    computed; among: the length of what one of them is a difference of.
    """
    unit = max(torch.finfo(each).eps for each in (dtype, torch.float32))
    return a.shape == b.shape and float((a - b).norm()) <= CLOSE * unit * max(float(b.norm()), among)


def _first(value: Any) -> Any:
    """A copy of the first tensor of floats in arguments or outputs, which a model may change later."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone() if value.is_floating_point() else None
    parts = value if isinstance(value, list | tuple) else list(value.values()) if isinstance(value, dict) else ()
    return next((found for part in parts if (found := _first(part)) is not None), None)


def _refuse(what: str, given: str, fix: str = "use effects(), which needs no linear path") -> Refused:
    return refuse("the residual stream", what, given, "blocks that add to a stream, a norm and an unembedding", fix)
