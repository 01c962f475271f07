"""`trace`: the inputs and output of every attention call in one run of a model, and the first fault of each kind."""

from __future__ import annotations

import dataclasses
import html
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
import torch

from ..common.arrays import as_tensor, is_tensor, name_of_dtype, read_array
from ..common.errors import Reason, Refused, first_line, refuse
from ..common.module_settings import number_of_heads
from ..common.text.terminal_text import printable
from ..common.text.units import counted
from ..engines.dispatch import solve
from ..language.expr import tables_of
from ..language.problem import Problem
from .handwritten import tensors_in
from .observed_call import CACHE, WRITTEN_OUT, Layout, ObservedCall, outline_of, problem_of
from .observer import Observer, arguments, left_alone, module_of

FIRST = {
    "shape": "the first wrong shape",
    "number": "NaN or infinity first appears",
    "row": "the first fully masked row",
}


@printable
@dataclass(frozen=True, eq=False, repr=False)
class Trace:
    """The result of `regard.torch.trace`; print it, or read its fields. findings: the faults, in order of detection."""

    model: str
    calls: tuple[ObservedCall, ...]
    findings: tuple[Finding, ...]

    def first(self, kind: str) -> Finding | None:
        """The first finding of a kind: "shape", "number" or "row"; None if there is none."""
        return next((finding for finding in self.findings if finding.kind == kind), None)

    def __str__(self) -> str:
        calls = counted(len(self.calls), "attention call") if self.calls else "no attention call"
        lines = [f"{self.model}: {calls}"]
        for kind in KINDS:
            finding = self.first(kind)
            if finding is not None:
                more = sum(other.kind == kind for other in self.findings) - 1
                lines.append(f"{FIRST[kind]}: {finding}" + (f" (and {more} more below)" if more else ""))
        if not self.findings and self.calls:
            lines.append("shapes fit, all numbers are finite, no row is fully masked")
        if not self.calls:
            lines.append(
                "neither regard, torch's attention or FlexAttention, nor a softmax between two products was called"
            )
        for (block, texts), group in groupby(
            self.calls, lambda call: (call.lines, [f.text for f in self.findings if f.call == call.index])
        ):
            some = list(group)
            where = some[0].layer if len(some) == 1 else f"{some[0].layer} … {some[-1].layer}, {len(some)} calls alike"
            lines += ["", f"{some[0].index:<3} {where}: {block[0]}"]
            lines += [f"    {line}" for line in block[1:]]
            lines += [f"  ! {text}" for text in texts]
        elsewhere = [finding for finding in self.findings if finding.call is None]
        return "\n".join([*lines, *([""] if elsewhere else []), *[f"  ! {finding}" for finding in elsewhere]])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


# Torch functions whose output is not checked: uninitialized memory, and access to attributes.
UNCHECKED = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "__get__", "__set__", "detach"}


def trace(model: torch.nn.Module | Callable[..., Any], inputs: Any) -> Trace:
    """Lists every attention call of a model with its shapes, dtypes and strides, and the first fault of each kind.

    The trace checks for shapes that do not fit, swapped axes of heads and rows, NaN and infinity (the first torch
    function whose output has them, and which argument had them before; then q, k, v, tables and output of every
    call), and fully masked rows, by the mask or by scores of −infinity.

    The model runs once, without gradients; compiled parts run eagerly. Buffers and the state of torch's random numbers
    are restored.

    Args:
        model: a torch module, a method of one (`model.generate`), or a function.
        inputs: a tensor, a tuple of positional or a dict of named arguments, or a function that returns them.

    Returns:
        The calls and the faults; print it for a report.

    Raises:
        Refused: the model raises an error. The message names the call or function with its shapes and those of the
            previous call, and a note has the trace up to there.

    Examples:
        >>> import torch, regard.torch
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        >>> print(regard.torch.trace(layer, torch.zeros(1, 8, 16)))
        TransformerEncoderLayer: 1 attention call
        shapes fit, all numbers are finite, no row is fully masked
        <BLANKLINE>
        0   self_attn: torch SDPA
            q      (1, 2, 8, 8) float32, strides (16, 8, 16, 1)
            k      (1, 2, 8, 8) float32, strides (16, 8, 16, 1)
            v      (1, 2, 8, 8) float32, strides (16, 8, 16, 1)
            mask   everything, over (1, 2, 8, 8)
            scores 0.353553 · q·k, over (1, 2, 8, 8)
            out    (1, 2, 8, 8) float32, strides (16, 8, 16, 1)
    """
    if not callable(model):
        raise refuse(
            "regard.torch.trace",
            "not a model",
            type(model).__name__,
            "a torch module, or a function",
            "pass the model itself",
        )
    tracer = _Tracer(model)
    args, named = arguments(inputs)
    tracer.check_inputs({**dict(enumerate(args)), **named})
    try:
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), left_alone(model), tracer.watching():
            model(*args, **named)
    except Exception as error:  # any error of the model is reported with its location, and remains the cause
        raise tracer.refusal(error) from error
    return tracer.result()


class _Tracer(Observer):
    def __init__(self, model):
        super().__init__(model, describing=True)
        self.findings: list[Finding] = []
        self.found_non_finite = False  # outside of attention
        # The errors, each with its layer and the call, or the function's name and arguments.
        self.errors: list[tuple[Exception, str, Any]] = []
        owner = module_of(model)
        owned = () if owner is None else (*owner.named_parameters(), *owner.named_buffers())
        self.owned = {id(tensor): name for name, tensor in owned}

    def result(self) -> Trace:
        for call in self.seen:
            call.let_go()
        return Trace(self.root, tuple(self.seen), tuple(self.findings))

    def check_inputs(self, inputs: dict[Any, Any]) -> None:
        """Reports NaN and infinity in the inputs of the model."""
        for name, value in inputs.items():
            text = non_finite(value, below=False)
            if text:
                self.found_non_finite = True
                self.findings.append(Finding("number", None, self.root, f"the input {name!r} already holds {text}"))

    # Hooks ------------------------------------------------------------------------------------------------------------

    def called(self, call: ObservedCall) -> None:
        problem = self._describe(call)
        self._found("shape", call, swapped_axes(call, self.modules.get(call.layer)))
        self._found("number", call, wrong_numbers(call, problem))
        if problem is not None:
            self._found("row", call, empty_rows(problem))
        call.let_go()

    def failed(self, call: ObservedCall, error: Exception) -> None:
        self._describe(call)
        self.errors.append((error, call.layer, call))

    def stepped(self, function, args, kwargs, out, error) -> None:
        name = getattr(function, "__name__", str(function))
        if error is not None:
            self.errors.append((error, self.layer, (name, tensors_in((*args, *kwargs.values())))))
        elif not self.found_non_finite and name not in UNCHECKED:
            text = next((text for part in tensors_in([out]) if (text := non_finite(part, below=False))), None)
            if text:
                self.found_non_finite = True
                self._found_in(name, text, tensors_in((*args, *kwargs.values())))

    def _found(self, kind: str, call: ObservedCall, sentences: list[str]) -> None:
        self.findings += [Finding(kind, call.index, call.layer, sentence) for sentence in sentences]

    def _found_in(self, name: str, text: str, given: list[torch.Tensor]) -> None:
        """Reports the first function whose output is not finite, and which of its arguments were not."""
        causes = [
            f"{self._name_of(tensor)} holds {known}" for tensor in given if (known := non_finite(tensor, below=False))
        ]
        cause = "; ".join(causes) or "its arguments are finite"
        self.findings.append(Finding("number", None, self.layer, f"the output of {name} holds {text}; {cause}"))

    def _name_of(self, tensor: torch.Tensor) -> str:
        """The path of a parameter or buffer; the sizes of any other tensor."""
        source = tensor if id(tensor) in self.owned else tensor._base if tensor._base is not None else tensor
        return self.owned.get(id(source), f"its argument of sizes {tuple(tensor.shape)}")

    def _describe(self, call: ObservedCall) -> Problem | None:
        """Sets the mask and scores of the call as text; returns its problem, if regard supports it."""
        try:
            problem = problem_of(call) if _has_shapes(call) else None
        except Refused:
            problem = None
        mask = call.given.get("attn_mask", call.given.get("mask"))
        layout = Layout.of(mask)
        if problem is None:
            text = ("as given" if mask is not None else "none given") if layout is None else str(layout)
            scores = "of sizes that do not fit"
        else:
            sizes = tuple(problem.dims[name] for name in "BHQK")
            text = (
                f"{'everything' if problem.mask is None else problem.mask}, over {sizes}"
                if layout is None
                else f"{layout}, over {sizes}"
            )
            rule = "" if problem.score is None else f"{problem.score}, where score = "
            scores = f"{rule}{problem.scale:.6g} · q·k, over {sizes}"
        if call.kind == WRITTEN_OUT and call.trail is not None:
            scores = str(Layout.of(call.trail.scores))
            if problem is not None and problem.mask is not None:
                text = "keys whose score is −infinity, or near the minimum of its dtype, are not attended"
        call.mask, call.scores = text, scores
        return problem

    # Errors of the model ----------------------------------------------------------------------------------------------

    def refusal(self, error: Exception) -> Refused:
        """The error as a refusal with its location; the trace up to there is added as a note."""
        chain = [error]
        while (earlier := chain[-1].__cause__ or chain[-1].__context__) is not None and isinstance(earlier, Exception):
            chain.append(earlier)
        place, given = self._place_of(error)
        cause, layer, what = next(
            (entry for entry in self.errors if any(entry[0] is one for one in chain)), (error, place, None)
        )
        call = what if isinstance(what, ObservedCall) else None
        if what is None:
            reasons = [
                Reason(
                    f"{place} stopped with {type(error).__name__}",
                    given,
                    f"arguments that fit: {first_line(error)}",
                    self._fix("see the original error, which is the cause of this one"),
                )
            ]
        elif call is not None:
            reasons = self._of_call(call, cause)
        else:
            name, given = what
            shown = (
                ", ".join(f"{self.owned.get(id(tensor), '')} {tuple(tensor.shape)}".strip() for tensor in given)
                or "no tensors"
            )
            reasons = [
                Reason(
                    f"{name} stopped in {layer}",
                    shown,
                    f"sizes that fit: {first_line(cause)}",
                    self._fix(f"check the arguments of {layer}"),
                )
            ]
        refused = Refused("regard.torch.trace", reasons)
        text = reasons[0].what if call is None else reasons[0].what.partition(": ")[2]
        self.findings.append(Finding("shape", None if call is None else call.index, layer, text))
        refused.add_note(str(self.result()))
        return refused

    def _of_call(self, call: ObservedCall, error: Exception) -> list[Reason]:
        where = f"call {call.index} in {call.layer} ({call.kind})"
        reasons = error.reasons if isinstance(error, Refused) else ()
        if not reasons and _has_shapes(call):
            try:
                outline_of(call)
            except Refused as refused:
                reasons = refused.reasons
        if reasons:
            return [replace(reason, what=f"{where}: {reason.what}", fix=self._fix(reason.fix)) for reason in reasons]
        shown = ", ".join(f"{name} {layout}" for name in "qkv" if (layout := Layout.of(call.given.get(name))))
        return [
            Reason(
                f"{where}: {type(error).__name__}",
                shown or "no tensors",
                f"arguments that fit: {first_line(error)}",
                self._fix("use the layout (batch, heads, rows, depth)"),
            )
        ]

    def _fix(self, text: str) -> str:
        """The fix, and the shapes of the last successful call."""
        good = [one for one in self.seen if one.out is not None]
        if not good:
            return text
        had = ", ".join(
            f"{name} {layout.shape}" for name, layout in zip("qkv", (good[-1].q, good[-1].k, good[-1].v)) if layout
        )
        return f"{text}; call {good[-1].index} in {good[-1].layer} had {had}"

    def _place_of(self, error: Exception) -> tuple[str, str]:
        """The innermost module in the traceback, and the sizes of its local tensors."""
        frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
        inner: dict[str, Any] = next((names for names in reversed(frames) if id(names.get("self")) in self.names), {})
        sizes = [f"{name} {tuple(value.shape)}" for name, value in inner.items() if isinstance(value, torch.Tensor)]
        return self.names.get(id(inner.get("self")), self.root), ", ".join(sizes[:8]) or "no tensors"


def _has_shapes(call: ObservedCall) -> bool:
    """Whether q, k and v are arrays or tensors."""
    parts = (call.q,) if call.kind == CACHE else (call.q, call.k, call.v)
    return all(hasattr(part, "shape") for part in parts)


# ---- the faults of one call, each in one sentence --------------------------------------------------------------------

KINDS = ("shape", "number", "row")


@printable
@dataclass(frozen=True)
class Finding:
    """A fault. kind: "shape", "number" (NaN or infinity) or "row" (fully masked). call: the call's index, if any."""

    kind: str
    call: int | None
    layer: str
    text: str

    def __str__(self) -> str:
        return f"{'' if self.call is None else f'call {self.call}, '}{self.layer}: {self.text}"


def non_finite(value, below: bool = True) -> str | None:
    """The number and first index of NaN and infinity in a tensor or array, as text; None if all values are finite.

    below: whether −infinity counts too.
    """
    if value is None or not hasattr(value, "shape"):
        return None
    tensor = value.detach() if is_tensor(value) else as_tensor(np.ascontiguousarray(read_array(value, "value")))
    if not tensor.is_floating_point() or tensor.device.type == "meta" or not tensor.numel():
        return None
    nan = torch.isnan(tensor)
    infinite = torch.isinf(tensor) if below else tensor == torch.inf
    wrong = nan | infinite
    count = int(wrong.sum())
    if not count:
        return None
    names = [name for name, some in (("NaN", nan), ("infinity", infinite)) if bool(some.any())]
    first = wrong.nonzero()[0].tolist()
    return f"{' and '.join(names)} in {count:,} of {tensor.numel():,} numbers, first at {first}"


def wrong_numbers(call: ObservedCall, problem: Problem | None) -> list[str]:
    """Where a call has NaN or infinity: in its inputs, or otherwise in its scores and output."""
    given = {"q": call.q, "k": call.k, "v": call.v, "the sinks": call.given.get("sinks")}
    mask = call.given.get("attn_mask")
    given |= {"the added mask": mask} if non_finite(mask, below=False) else {}
    if problem is not None and problem.score is not None:
        given |= {f"the score's table {table.name!r}": table.array for table in tables_of(problem.score).values()}
    below = {"the added mask": False}
    found = [
        f"{name} already holds {text}"
        for name, value in given.items()
        if (text := non_finite(value, below.get(name, True)))
    ]
    text = non_finite(call.out)
    if text and not found:
        scores = call.trail.scores if call.trail is not None else None
        inner = non_finite(scores, below=False)
        if inner:
            found.append(
                f"the scores hold {inner}, though q and k are finite: they exceed the range of {name_of_dtype(scores)}"
            )
        found.append(f"the output holds {text}, though q, k and v are finite")
    return found


def empty_rows(problem: Problem) -> list[str]:
    """Fully masked rows: the mask allows no key, or every allowed score is −infinity."""
    B, H, Q, K = (problem.dims[name] for name in "BHQK")
    if 0 in (B, H, Q):
        return []
    found = []
    empty = np.full((B, H, Q), K == 0)
    if problem.mask is not None and K:
        flat = {
            name: np.zeros((B, heads, rows, 1), np.float32)
            for name, heads, rows in (("q", H, Q), ("k", 1, K), ("v", 1, K))
        }
        _, sums = solve(dataclasses.replace(problem, **flat, score=None, sinks=None, dropout=None))  # type: ignore[arg-type]
        empty = np.isneginf(sums)
    if empty.any():
        found.append(f"{_place(empty)} is fully masked: the mask allows no key")
    if problem.score is not None and K:
        v = np.broadcast_to(np.zeros((), problem.dtype), (*problem.k.shape[:3], 1))
        _, sums = solve(dataclasses.replace(problem, v=v, sinks=None, dropout=None))
        by_score = np.isneginf(sums) & ~empty
        if by_score.any():
            found.append(
                f"{_place(by_score)} is fully masked: its score is −infinity for every key that the mask allows"
            )
    return found


def swapped_axes(call: ObservedCall, module: Any) -> list[str]:
    """Swapped axes of rows and heads, which only the module's own number of heads reveals."""
    heads = number_of_heads(module)
    sizes = tuple(call.q.shape)
    if call.kind == CACHE or heads is None or len(sizes) != 4 or sizes[1] == heads or sizes[2] != heads:
        return []
    return [
        f"q {sizes} has {sizes[1]} heads and {heads} rows, and the layer {heads} heads: the axes of heads "
        "and rows are swapped; the layout is (batch, heads, rows, depth), so call transpose(1, 2)"
    ]


def _place(rows: np.ndarray) -> str:
    """The first of these rows, and how many there are."""
    batch, head, row = (int(at) for at in np.argwhere(rows)[0])
    count = int(rows.sum())
    more = "" if count == 1 else f", the first of {count:,} of {rows.size:,} rows,"
    return f"row {row} of batch entry {batch}, head {head}{more}"
