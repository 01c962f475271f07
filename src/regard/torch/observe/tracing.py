"""Trace: one run of a model with every attention call laid open, and the first place where a shape or a number goes
wrong.
"""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import Any

import torch

from ...common.errors import Reason, Refused, first_line, refuse
from ...language.problem import Problem
from .describe import outline_of, problem_of
from .faults import Finding, amiss, empty_rows, swapped_axes, wrong_numbers
from .handwritten import tensors_in
from .layout import Layout
from .observed_call import CACHE, WRITTEN_OUT, ObservedCall
from .observer import Observer, arguments, left_alone, module_of
from .trace_result import Trace

__all__ = ["trace"]

# Functions of torch whose output says nothing: memory that nobody has written to, and attributes that are only read.
SILENT = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "__get__", "__set__", "detach"}


def trace(model, inputs) -> Trace:
    """Every attention call of a model: shapes, dtypes and strides of q, k, v, mask, scores and output, and what goes
    wrong first.

    Looked for are: a shape that does not fit, heads and rows that changed places, NaN and infinity (the first function
    of torch whose output holds one, and which of its arguments did; then q, k, v, tables and output of every call),
    rows that may attend no key, and scores of −infinity that leave none.

    model: any torch module, a method of one (`model.generate`), or a function; what is compiled runs as it was written.
    inputs: a tensor, a tuple of positional or a dict of named arguments, or a function that makes them. The model runs
    once, without gradients; buffers and torch's random numbers are put back.

    Refused: a model that stops with an error; the refusal names the call or function that it stopped at, with its
    shapes and those of the call before, and shows the trace up to there.

    >>> import torch, regard.torch
    >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
    >>> print(trace(layer, torch.zeros(1, 8, 16)))
    TransformerEncoderLayer: 1 attention call
    shapes fit, all numbers are finite, every row attends something
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
            "no model",
            given=type(model).__name__,
            expected="a torch module, or a function",
            fix="pass the model itself",
        )
    tracer = _Tracer(model)
    args, named = arguments(inputs)
    tracer.look_at_inputs({**dict(enumerate(args)), **named})
    try:
        with torch.no_grad(), torch.compiler.set_stance("force_eager"), left_alone(model), tracer.watching():
            model(*args, **named)
    except Exception as error:  # whatever stopped the model is shown with its place, and stays the cause
        raise tracer.refusal(error) from error
    return tracer.result()


class _Tracer(Observer):
    def __init__(self, model):
        super().__init__(model, describing=True)
        self.findings: list[Finding] = []
        self.spoiled = False  # whether NaN or infinity was seen outside of attention
        # What failed, in which layer, and the call or the function's arguments.
        self.broken: list[tuple[Exception, str, Any]] = []
        owner = module_of(model)
        owned = () if owner is None else (*owner.named_parameters(), *owner.named_buffers())
        self.owned = {id(tensor): name for name, tensor in owned}

    def result(self) -> Trace:
        for call in self.seen:
            call.let_go()
        return Trace(self.root, tuple(self.seen), tuple(self.findings))

    def look_at_inputs(self, inputs: dict[Any, Any]) -> None:
        """NaN that the model was given is none of its own."""
        for name, value in inputs.items():
            words = amiss(value, below=False)
            if words:
                self.spoiled = True
                self.findings.append(
                    Finding(
                        kind="number",
                        call=None,
                        layer=self.root,
                        text=f"the input {name!r} already holds {words}",
                    )
                )

    # What is noted ----------------------------------------------------------------------------------------------------

    def called(self, call: ObservedCall) -> None:
        problem = self._noted(call)
        self._found("shape", call, swapped_axes(call, self.modules.get(call.layer)))
        self._found("number", call, wrong_numbers(call, problem))
        if problem is not None:
            self._found("row", call, empty_rows(problem))
        call.let_go()

    def failed(self, call: ObservedCall, error: Exception) -> None:
        self._noted(call)
        self.broken.append((error, call.layer, call))

    def stepped(self, function, args, kwargs, out, error) -> None:
        name = getattr(function, "__name__", str(function))
        if error is not None:
            self.broken.append((error, self.layer, (name, tensors_in((*args, *kwargs.values())))))
        elif not self.spoiled and name not in SILENT:
            words = next((words for part in tensors_in([out]) if (words := amiss(part, below=False))), None)
            if words:
                self.spoiled = True
                self._found_in(name, words, tensors_in((*args, *kwargs.values())))

    def _found(self, kind: str, call: ObservedCall, sentences: list[str]) -> None:
        self.findings += [
            Finding(kind=kind, call=call.index, layer=call.layer, text=sentence) for sentence in sentences
        ]

    def _found_in(self, name: str, words: str, given: list[torch.Tensor]) -> None:
        """The first function whose output is not finite, and which of its arguments was not."""
        causes = []
        for tensor in given:
            known = amiss(tensor, below=False)
            if known:
                causes.append(f"{self._called(tensor)} holds {known}")
        cause = "; ".join(causes) if causes else "what it was given is finite"
        self.findings.append(
            Finding(kind="number", call=None, layer=self.layer, text=f"the output of {name} holds {words}; {cause}")
        )

    def _called(self, tensor: torch.Tensor) -> str:
        """A parameter or buffer by its path, anything else by its sizes."""
        source = tensor if id(tensor) in self.owned else tensor._base if tensor._base is not None else tensor
        return self.owned.get(id(source), f"its argument of sizes {tuple(tensor.shape)}")

    def _noted(self, call: ObservedCall) -> Problem | None:
        """Says what the call's rules are; the problem that it is, if it is one."""
        try:
            problem = problem_of(call) if all(hasattr(part, "shape") for part in self._parts(call)) else None
        except Refused:
            problem = None
        mask = call.given.get("attn_mask", call.given.get("mask"))
        laid = Layout.of(mask)
        if problem is None:
            said = ("as given" if mask is not None else "none given") if laid is None else str(laid)
            scores = "of sizes that do not fit"
        else:
            sizes = tuple(problem.dims[name] for name in "BHQK")
            said = (
                f"{'everything' if problem.mask is None else problem.mask}, over {sizes}"
                if laid is None
                else f"{laid}, over {sizes}"
            )
            rule = "" if problem.score is None else f"{problem.score}, where score = "
            scores = f"{rule}{problem.scale:.6g} · q·k, over {sizes}"
        if call.kind == WRITTEN_OUT and call.trail is not None:
            scores = str(Layout.of(call.trail.scores))
            if problem is not None and problem.mask is not None:
                said = "keys whose score is −infinity, or near the smallest number of its dtype, are not attended"
        call.mask, call.scores = said, scores
        return problem

    def _parts(self, call: ObservedCall) -> list[Any]:
        return [call.q] if call.kind == CACHE else [call.q, call.k, call.v]

    # What is said of an error -----------------------------------------------------------------------------------------

    def refusal(self, error: Exception) -> Refused:
        """The error as a refusal that names its place; the trace up to there is a note to it."""
        chain = [error]
        while (earlier := chain[-1].__cause__ or chain[-1].__context__) is not None and isinstance(earlier, Exception):
            chain.append(earlier)
        what = next((found for found in self.broken if any(found[0] is one for one in chain)), None)
        if what is None:
            place, given = self._place_of(error)
            reasons = [
                Reason(
                    f"{place} stopped with {type(error).__name__}",
                    given=given,
                    expected=f"arguments that fit: {first_line(error)}",
                    fix=self._mend("the error itself is the cause of this one"),
                )
            ]
        elif isinstance(what[2], ObservedCall):
            reasons = self._of_call(what[2], what[0])
        else:
            name, given = what[2]
            shown = (
                ", ".join(f"{self.owned.get(id(tensor), '')} {tuple(tensor.shape)}".strip() for tensor in given)
                or "no tensors"
            )
            reasons = [
                Reason(
                    f"{name} stopped in {what[1]}",
                    given=shown,
                    expected=f"sizes that fit: {first_line(what[0])}",
                    fix=self._mend(f"look at what {what[1]} was given"),
                )
            ]
        refused = Refused("regard.torch.trace", reasons)
        first = Finding(kind="shape", call=None, layer=what[1] if what else place, text=reasons[0].what)
        if what is not None and isinstance(what[2], ObservedCall):
            first = Finding(
                kind="shape", call=what[2].index, layer=what[2].layer, text=reasons[0].what.partition(": ")[2]
            )
        self.findings.append(first)
        refused.add_note(str(self.result()))
        return refused

    def _of_call(self, call: ObservedCall, error: Exception) -> list[Reason]:
        where = f"call {call.index} in {call.layer} ({call.kind})"
        reasons = error.reasons if isinstance(error, Refused) else ()
        if not reasons and all(hasattr(part, "shape") for part in self._parts(call)):
            try:
                outline_of(call)
            except Refused as refused:
                reasons = refused.reasons
        if reasons:
            return [replace(reason, what=f"{where}: {reason.what}", fix=self._mend(reason.fix)) for reason in reasons]
        shown = ", ".join(f"{name} {layout}" for name in "qkv" if (layout := Layout.of(call.given.get(name))))
        return [
            Reason(
                f"{where}: {type(error).__name__}",
                given=shown or "no tensors",
                expected=f"arguments that fit: {first_line(error)}",
                fix=self._mend("the layout is (batch, heads, rows, depth)"),
            )
        ]

    def _mend(self, words: str) -> str:
        """What to do, and what the last good call had."""
        good = [one for one in self.seen if one.out is not None]
        if not good:
            return words
        had = ", ".join(
            f"{name} {layout.shape}" for name, layout in zip("qkv", (good[-1].q, good[-1].k, good[-1].v)) if layout
        )
        return f"{words}; call {good[-1].index} in {good[-1].layer} had {had}"

    def _place_of(self, error: Exception) -> tuple[str, str]:
        """The innermost module that the error came through, and the sizes of what it was working on."""
        frames = [frame.f_locals for frame, _ in traceback.walk_tb(error.__traceback__)]
        inner: dict[str, Any] = next((held for held in reversed(frames) if id(held.get("self")) in self.names), {})
        sizes = [f"{name} {tuple(value.shape)}" for name, value in inner.items() if isinstance(value, torch.Tensor)]
        return self.names.get(id(inner.get("self")), self.root), ", ".join(sizes[:8]) or "no tensors"
