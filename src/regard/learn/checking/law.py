"""Exercises that are a step of attention: what the law gives for a case, with and without known mistakes.

The names of arguments have the meaning that they have everywhere: q, k, v, mask, causal, scale, lengths. `scores` are
those of a softmax; `rows` and `keys` are the sizes of a causal mask, `n` both.
"""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...laws.arguments import Arguments
from ...laws.call import Call, Conventions
from ...laws.forward import forward, meaning
from ...laws.mistake import Mistake

LAWS = Conventions()


def computed(step: str, case: dict[str, Any], mistakes: Iterable[Mistake], like: np.ndarray) -> np.ndarray | None:
    """A step of attention with these mistakes, in the shape of the right result; None if they do not apply."""
    call = call_of(case)
    arguments = meaning(call, LAWS)
    changed = arguments
    with np.errstate(all="ignore"):
        try:
            for mistake in mistakes:
                changed = mistake.change(changed) or changed
        except (ArithmeticError, ValueError):  # without rows or keys a mistake may have no result, such as 1/√0
            return np.full(like.shape, np.nan)
    return None if changed is arguments else result(step, call, changed, like)


def result(step: str, call: Call, arguments: Arguments, like: np.ndarray) -> np.ndarray:
    """A step of attention with these arguments, in the shape of the right result; NaN without a result."""
    with np.errstate(all="ignore"):
        try:
            array: np.ndarray = getattr(forward(arguments, call.q, call.k, call.v), step)
        except (ArithmeticError, ValueError):
            return np.full(like.shape, np.nan)
    if array.size == like.size:
        return array.reshape(like.shape)
    while array.ndim > like.ndim and array.shape[0] == 1:  # a mistake that changes the number of rows or keys
        array = array[0]
    return array


def call_of(case: dict[str, Any]) -> Call:
    """The call that a case means. Axes that it lacks have the size 1."""
    scale, causal, lengths = case.get("scale"), case.get("causal", False), case.get("lengths")
    rows, mask = case.get("rows", case.get("n")), case.get("mask")
    if "scores" in case:
        q, scale = _four(case["scores"]), 1.0
        k = np.broadcast_to(np.eye(q.shape[-1]), (*q.shape[:2], q.shape[-1], q.shape[-1]))
    elif rows is not None:
        entries = 1 if lengths is None else len(lengths)
        q, k = np.ones((entries, 1, rows, 1)), np.ones((entries, 1, case.get("keys", rows), 1))
        causal = case.get("causal", True)
    else:
        q, k = _four(case["q"]), _four(case["k"])
    return Call(
        q=q,
        k=k,
        v=_four(case["v"]) if "v" in case else k,
        mask=None if mask is None else _four(mask, bool),
        causal=bool(causal),
        scale=scale,
        lengths=lengths,
    )


def _four(array: Any, dtype: type = np.float64) -> np.ndarray:
    numbers: np.ndarray = np.asarray(array.detach() if hasattr(array, "detach") else array, dtype)
    return numbers.reshape((1,) * (4 - numbers.ndim) + numbers.shape)


KEPT = 4000  # characters that a step prints and that are shown
FLOOD = 10 << 20  # characters that a step may print


class Flood(BaseException):
    """The code prints more than anyone reads. Not an Exception, so that `except Exception` does not go on."""


class Printed(io.StringIO):
    """What is printed, as far as it is shown: kept here, and sent to the parent, which may have to end this process."""

    def __init__(self, most: int):
        super().__init__()
        self.most, self.count = most, 0

    def write(self, text: str) -> int:
        self.count += len(text)
        if self.count > FLOOD:
            raise Flood
        shown = text[: max(self.most - self.tell(), 0)]
        if shown:
            super().write(shown)
            with contextlib.suppress(OSError):  # the code may have closed it
                os.write(2, shown.encode("utf-8", "replace"))
        return len(text)


@contextlib.contextmanager
def printing(most: int = 0) -> Iterator[Printed]:
    """Keeps the first `most` characters that are printed. A copy of this process, made by `os.fork`, ends here."""
    process = os.getpid()
    printed = Printed(most)
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            np.errstate(all="ignore"),
        ):
            yield printed
    finally:
        if os.getpid() != process:
            os._exit(0)


def executed(code: str, where: str, names: dict[str, Any]) -> dict[str, Any]:
    """The names after running code, which is compiled as a file of its own."""
    exec(compile(code, where, "exec", dont_inherit=True), names)
    return names


@dataclass(frozen=True)
class Failed:
    """A case that raised an error. kind: its type · words: type and message"""

    kind: str
    words: str


def attempt(body: Callable[[], Any], most: int = 0) -> tuple[Any, BaseException | None, str]:
    """What a learner's code returns, the error that it raises, which may be anything, and what it prints."""
    with printing(most) as printed:
        try:
            return body(), None, printed.getvalue()
        except BaseException as error:  # also SystemExit and KeyboardInterrupt, which are problems of the code too
            return None, error, printed.getvalue()
