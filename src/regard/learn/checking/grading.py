"""Grading: an exercise, and learners' files one after another, step by step. It runs where the learner's code runs.

The steps of a check: the file is loaded; each case is run, smallest first: does it run, is the shape right, do the laws
hold, is the result right. Cases, and how values are compared and shown, come first.
"""

from __future__ import annotations

import ast
import contextlib
import copy
import importlib
import inspect
import io
import linecache
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.util import decode_source
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from ...common.errors import did_you_mean
from ...sandbox.messages import one_line, said
from ..chapter import Exercise
from ..running import executed
from .problem import Problem

Case = dict[str, Any]
Function = Callable[..., Any]


def cases_of(exercise: Exercise) -> list[Case]:
    """The arguments of each case by name; the same in every run."""
    found: list[Case] = []
    rng = np.random.default_rng(7)

    def case(**arguments: Any) -> None:
        found.append(arguments)

    def whole(*shape: int) -> np.ndarray:
        """Small whole numbers: products can be computed by hand."""
        return rng.integers(-3, 4, shape).astype(np.float64)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape)

    names: dict[str, Any] = {"case": case, "whole": whole, "normal": normal, "np": np, "rng": rng}
    if exercise.needs:
        names["torch"] = importlib.import_module("torch")
        names["filled"] = filled
    with contextlib.redirect_stdout(io.StringIO()):
        executed(exercise.cases, f"cases of {exercise.name}", names)
    return found


def filled(module: Any, seed: int = 0) -> Any:
    """A torch module whose parameters are drawn again, each by its name and shape: two modules with the same names of
    parameters get the same numbers, in whatever order they were made.
    """
    torch = importlib.import_module("torch")
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            rng = np.random.default_rng([seed, *name.encode()])
            drawn = rng.standard_normal(tuple(parameter.shape)) / max(parameter.shape[-1:] or [1]) ** 0.5
            parameter.copy_(torch.as_tensor(drawn, dtype=parameter.dtype))
    return module


MOST = 24  # numbers that are shown of one array
LARGEST = 10_000_000  # numbers of an array that is compared


def plain(value: Any) -> Any:
    """A copy as NumPy arrays in float64 (or bool), tuples, dicts, texts and None."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if math.prod(getattr(value, "shape", ())) > LARGEST:
        # Much larger than any right result, so that its numbers do not matter. This takes no memory.
        return np.broadcast_to(np.nan, tuple(value.shape))
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = (value.double() if value.dtype.is_floating_point else value).numpy()
    if isinstance(value, np.ndarray) and value.dtype != object:
        if value.dtype.kind not in "biuf":
            return f"an object of the type array of {value.dtype}"
        return np.array(value, bool if value.dtype == bool else np.float64, subok=False)
    if isinstance(value, tuple) and any(getattr(each, "ndim", isinstance(each, (list, tuple))) for each in value):
        return tuple(plain(each) for each in value)
    if isinstance(value, (list, tuple, np.ndarray)):
        parts = [plain(each) for each in value]
        alike = len({each.shape if isinstance(each, np.ndarray) else None for each in parts}) == 1
        return np.array(parts) if parts and alike and isinstance(parts[0], np.ndarray) else tuple(parts) or np.zeros(0)
    if isinstance(value, (bool, np.bool_)):
        return np.array(bool(value))
    if isinstance(getattr(value, "data", None), (int, float)):  # a scalar with a gradient
        return np.array(float(value.data))
    try:
        return np.array(float(value))
    except (TypeError, ValueError):
        return f"an object of the type {type(value).__name__}"


def agree(first: Any, second: Any, digits: float) -> bool:
    """Whether two plain values are equal up to rounding. NaN equals NaN. digits: the relative and absolute limit."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        if first.shape != second.shape or (first.dtype == bool) != (second.dtype == bool):
            return False
        return bool(np.allclose(first, second, rtol=digits, atol=digits, equal_nan=True))
    if isinstance(first, tuple) and isinstance(second, tuple):
        first, second = dict(enumerate(first)), dict(enumerate(second))
    if isinstance(first, dict) and isinstance(second, dict):
        return first.keys() == second.keys() and all(agree(first[name], second[name], digits) for name in first)
    return type(first) is type(second) and bool(first == second)


def single(value: Any) -> bool:
    """Whether a value that a function returned has numbers of 32 bits."""
    if isinstance(value, Mapping):
        return any(map(single, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(single, value))
    return str(getattr(value, "dtype", "")).removeprefix("torch.") == "float32"


def difference(first: Any, second: Any, digits: float) -> str:
    """Two plain values that look the same in print and are not: how far apart they are. Otherwise an empty text."""
    if not (isinstance(first, np.ndarray) and isinstance(second, np.ndarray) and agree(first, second, digits)):
        return ""
    apart = np.nanmax(np.abs(first - second), initial=0.0)
    return f"they differ by up to {apart:.1g}: is something computed in float32, or a small number added?"


def shape_of(value: Any) -> Any:
    """The shape of a plain value; of several, a tuple of shapes."""
    if isinstance(value, np.ndarray):
        return value.shape
    if isinstance(value, tuple):
        return tuple(shape_of(each) for each in value)
    return type(value).__name__


def shown(value: Any) -> str:
    """A plain value as text: short arrays whole, of longer ones the shape and the first numbers."""
    if isinstance(value, np.ndarray):
        if value.size == 0 and value.ndim > 1:
            return f"an empty array of the shape {value.shape}"
        if value.size > MOST:
            first = ", ".join(_digits(each) for each in value.flat[:4])
            return f"an array of the shape {value.shape}: {first}, …"
        return np.array2string(value, separator=", ", formatter={"float_kind": _digits}, max_line_width=100)  # type: ignore[arg-type]
    if isinstance(value, tuple):
        return f"({', '.join(shown(each) for each in value)})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {shown(each)}" for name, each in value.items()) + "}"
    return "None" if value is None else str(value)


def _digits(number: float) -> str:
    return f"{number:.5g}"


KEPT = 4000  # characters that a step prints and that are shown
FLOOD = 10 << 20  # characters that a step may print
MODULE = "exercise"  # the name of the learner's file while it is checked
FINE, COARSE = 2.0**-26, 2.0**-12  # the roots of the roundoff of float64 and float32


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


class Failed(str):
    """A case that raised an error: its type and message."""


def attempt(body: Callable[[], Any], most: int = 0) -> tuple[Any, BaseException | None, str]:
    """What a learner's code returns, the error that it raises, which may be anything, and what it prints."""
    with printing(most) as printed:
        try:
            return body(), None, printed.getvalue()
        except BaseException as error:  # also SystemExit and KeyboardInterrupt, which are problems of the code too
            return None, error, printed.getvalue()


class Broken(Exception):
    """A property that does not hold; the message says for which numbers."""


def true(condition: Any, otherwise: str) -> None:
    """What the chapter's blocks require."""
    if not condition:
        raise Broken(otherwise)


class Grading:
    """The checks of an exercise.

    path, learner, printed: the file that is checked, its function, and what each step printed · single: whether the
    function returns numbers of 32 bits
    """

    path: Path
    learner: Callable[..., Any] | None
    single = False

    def __init__(self, exercise: Exercise):
        self.exercise = exercise
        self.cases = cases_of(exercise)
        self.right = self.defined(exercise.solution)
        with printing():  # warnings of the solution are not the learner's
            results = [self._result(self.right, copy.deepcopy(case)) for case in self.cases]
        self.wanted = [plain(result) for result in results]
        self._arrays = all(isinstance(result, np.ndarray) for result in results)
        self.printed: list[str] = []

    @property
    def digits(self) -> float:
        """The relative and absolute error that is rounding: the root of the roundoff of the numbers that are computed:
        those of the chapter, or the learner's, who may compute with fewer bits.
        """
        return COARSE if self.exercise.needs or self.single else FINE

    # ---- steps -------------------------------------------------------------------------------------------------------

    def load(self, path: str) -> Problem | None:
        """Runs a learner's file and finds the function."""
        names, problem = self.executed_file(path)
        if problem:
            return problem
        name = self.exercise.function
        found = names.get(name)
        if found is None:
            return self.problem("runs", f"there is no {name} in {self.path.name}: {_defines(names, name)}")
        if not callable(found):
            return self.problem("runs", f"{name} is not a function, but {type(found).__name__}")
        self.learner = found
        return None

    def executed_file(self, path: str) -> tuple[dict[str, Any], Problem | None]:
        """The names that a learner's file defines, and what is wrong with it."""
        self.path, self.learner, self.printed, self.single = Path(path), None, [], False
        try:
            code = decode_source(self.path.read_bytes())
        except (SyntaxError, UnicodeDecodeError):  # it names an encoding that does not exist, or is in another one
            code = "\0"
        if "\0" in code:
            what = f"{self.path.name} is not a text in UTF-8; save it with this encoding"
            return {}, self.problem("runs", what)
        module = sys.modules[MODULE] = ModuleType(MODULE)  # dataclasses look their module up
        names = vars(module)
        names["__file__"] = str(self.path)
        linecache.checkcache(str(self.path))
        sys.path.insert(0, str(self.path.parent))
        _, error = self.run(lambda: executed(code, str(self.path), names))
        if isinstance(error, SyntaxError):
            details = [f"line {error.lineno}: {one_line(error.text or '')}"] if error.lineno else []
            return names, self.problem("runs", f"this is not Python: {error.msg}", details)
        return names, None if error is None else self.error(error, "the file cannot be run")

    def case(self, number: int) -> Problem | None:
        """One case: runs, shape, laws, result."""
        arguments, wanted = self.cases[number], self.wanted[number]
        given = copy.deepcopy(arguments)

        def call() -> tuple[Any, Any]:
            value = self._result(self.learner, given)
            return value, plain(value)

        results, error = self.run(call)
        inputs = _inputs(arguments)
        name = self.exercise.function
        if isinstance(error, Broken):
            return self.problem("law", str(error), inputs)
        if error is not None:
            return self._unusable(error, arguments) or self.error(
                error, f"{self._call(arguments)} raises an error", inputs
            )
        value, result = results
        if not agree(plain(given), plain(arguments), 0):
            return self.problem(
                "inputs", f"{name} changes its inputs; a function of this kind returns something new", inputs
            )
        if value is None and wanted is not None:
            return self._nothing()
        if shape_of(result) != shape_of(wanted):
            return self._wrong_shape(arguments, result, wanted)
        self.single = self.single or single(value)
        if not agree(self.outcome(self.learner, arguments), result, self.digits):
            what = (
                f"{name} returns something else when it is called again: does it draw random numbers, or keep values?"
            )
            return self.problem("random", what, inputs)
        for says, code in self.exercise.laws:
            problem = self._law(says, code, arguments)
            if problem:
                return problem
        if not agree(result, wanted, self.digits):
            what, first, second = _first_difference(result, wanted, self.digits)
            details = [*inputs, *_lines(f"{what}returned   ", first), *_lines(f"{what}must be    ", second)]
            details += filter(None, [difference(first, second, COARSE)])
            return self.problem("value", f"{self._call(arguments)} is not right", details)
        return None

    # ---- running -----------------------------------------------------------------------------------------------------

    def run(self, body: Callable[[], Any]) -> tuple[Any, BaseException | None]:
        """What the learner's code returns, or the error that it raises. What is printed is kept."""
        value, error, printed = attempt(body, KEPT)
        self.printed.append(printed)
        return value, error

    def outcome(self, function: Any, arguments: Case) -> Any:
        """A plain result, or the error, as something to be compared. What is printed is not kept."""
        value, error, _ = attempt(lambda: plain(self._result(function, copy.deepcopy(arguments))))
        return value if error is None else Failed(said(error))

    def gives(self, function: Any, seen: Mapping[int, Any]) -> bool:
        """Whether a function gives results that were seen, by the number of the case; or the same errors."""
        return all(agree(self.outcome(function, self.cases[at]), each, self.digits) for at, each in seen.items())

    def defined(self, code: str) -> Callable[..., Any]:
        """The function that code of the chapter defines."""
        with printing():
            names = executed(code, f"code of {self.exercise.name}", {"__name__": MODULE})
        return names[self.exercise.function]

    def _result(self, function: Any, arguments: Case) -> Any:
        """What is compared: the value of the function, or what the chapter's block leaves in `result`."""
        if not self.exercise.result:
            return self._called(function, arguments)
        names = self._names(function, arguments)
        return executed(self.exercise.result, f"result of {self.exercise.name}", names)["result"]

    def _called(self, function: Any, arguments: Case) -> Any:
        given = inspect.signature(self.right).bind(**arguments)  # learners may name parameters as they like
        return function(*given.args, **given.kwargs)

    def _names(self, function: Any, arguments: Case) -> dict[str, Any]:
        names = {"np": np, "math": math, "true": true, self.exercise.function: function, **arguments}
        if self.exercise.needs:
            names |= {"torch": sys.modules["torch"], "filled": filled}
        return names

    def _as_arrays(self, function: Any) -> Any:
        """The function for laws, where the solution returns arrays: lists and tensors become arrays, and each argument
        is a copy, because torch reads no array whose rows are in reverse order.
        """
        if not self._arrays:
            return function

        def called(*values: Any, **named: Any) -> Any:
            return plain(function(*copy.deepcopy(values), **copy.deepcopy(named)))

        return called

    def _law(self, says: str, code: str, arguments: Case) -> Problem | None:
        """Whether a property holds for a case."""

        def same(first: Any, second: Any) -> None:
            first, second = plain(first), plain(second)
            if not agree(first, second, self.digits):
                one, two = shown(first), shown(second)
                between = "\nand\n" if "\n" in one + two else " and "
                apart = difference(first, second, COARSE)
                raise Broken(f"{one}{between}{two}{between[0]}must be equal" + (apart and f"\n{apart}"))

        names = self._names(self._as_arrays(self.learner), copy.deepcopy(arguments)) | {"same": same, "result": None}
        _, error, _ = attempt(lambda: executed(code, "law", names))
        tree = ast.dump(ast.parse(code))
        inputs = _inputs({name: value for name, value in arguments.items() if f"id='{name}'" in tree})
        if isinstance(error, Broken):
            return self.problem("law", f"it must hold that {says}", [*inputs, str(error)])
        return None if error is None else self.error(error, f"the check whether {says} fails", inputs)

    # ---- words -------------------------------------------------------------------------------------------------------

    def problem(self, kind: str, what: str, details: Any = ()) -> Problem:
        """A problem, with what loading the file and the last case printed."""
        printed = "".join(dict.fromkeys([*self.printed[:1], *self.printed[1:][-1:]]))
        return Problem(kind, what, tuple(details), printed=printed)

    def error(self, error: BaseException, what: str, details: Any = ()) -> Problem:
        """An error in the learner's code, with the line where it arose."""
        kind, words = "raises" if self.learner else "runs", said(error)
        if isinstance(error, SystemExit):
            kind, what = "runs", "the code ends the program; a function returns instead"
        if isinstance(error, Flood):
            kind, what = "runs", f"the code prints more than {FLOOD >> 20} MiB"
            words = "remove the print, or does a loop never end?"
        lines = [
            f"line {each.lineno}: {each.line}"
            for each in traceback.extract_tb(error.__traceback__)
            if each.filename == str(self.path)
        ]
        return self.problem(kind, what, [*details, words, *list(dict.fromkeys(lines))[-2:]])

    def _call(self, arguments: Case) -> str:
        if self.exercise.result:  # the arguments are those of the chapter's block
            return self.exercise.function
        return f"{self.exercise.function}({', '.join(arguments)})"

    def _wrong_shape(self, arguments: Case, result: Any, wanted: Any) -> Problem:
        what = f"the result has the shape {shape_of(result)} and must have {shape_of(wanted)}"
        if not isinstance(result, np.ndarray) and isinstance(wanted, np.ndarray):
            what = f"the result is {_kind(result)} and must be an array of the shape {wanted.shape}"
        if self.exercise.shape:
            what += f": {self.exercise.shape}"
        return self.problem("shape", what, _inputs(arguments))

    def _nothing(self) -> Problem:
        return self.problem("runs", f"{self.exercise.function} returns None: is there a `return`?")

    def _unusable(self, error: BaseException, arguments: Case) -> Problem | None:
        """What is wrong with a value that the chapter cannot use; None if the learner's code raised the error."""
        inside = any(each.filename == str(self.path) for each in traceback.extract_tb(error.__traceback__))
        if inside or not self.exercise.result or inspect.isclass(self.right) or not callable(self.learner):
            return None
        value, failure, _ = attempt(lambda: plain(self._called(self.learner, copy.deepcopy(arguments))))
        if failure is not None:
            return None
        if value is None:
            return self._nothing()
        what = f"{self.exercise.function} returns {_kind(value)}"
        if self.exercise.shape:
            what += f"; the result must have the shape {self.exercise.shape}"
        return self.problem("shape", what, [*_inputs(arguments), *_lines("returned   ", value)])


def _inputs(arguments: Case) -> list[str]:
    width = max(map(len, arguments), default=0)
    return [line for name, value in arguments.items() for line in _lines(f"{name:{width}} = ", plain(value))]


def _lines(name: str, value: Any) -> list[str]:
    """A plain value after its name; the rows of an array are below one another."""
    first, *others = (each for each in shown(value).splitlines() if each.strip())
    return [name + first, *(" " * len(name) + each for each in others)]


def _first_difference(first: Any, second: Any, digits: float) -> tuple[str, Any, Any]:
    """Of results with several names the first one that differs, and its name; other results as they are."""
    if isinstance(first, dict) and isinstance(second, dict):
        for name, wanted in second.items():
            if not agree(first.get(name), wanted, digits):
                return f"{name}: ", first.get(name), wanted
    return "", first, second


def _kind(result: Any) -> str:
    if isinstance(result, np.ndarray):
        return f"an array of the shape {result.shape}" if result.ndim else "one number"
    if isinstance(result, Mapping):
        return "a dict"
    if isinstance(result, tuple):
        return f"{len(result)} values of the shapes {', '.join(str(shape_of(each)) for each in result)}"
    return str(result) if str(result).startswith("an object") else f"the text {one_line(str(result), 40)!r}"


def _defines(names: Mapping[str, Any], wanted: str) -> str:
    """What a file defines itself, and which of it may be meant."""
    own = [
        name
        for name, value in names.items()
        if callable(value) and not name.startswith("_") and getattr(value, "__module__", None) == MODULE
    ]
    if not own:
        return "it defines no function"
    meant = did_you_mean(wanted, own) if len(own) > 1 else f"rename it to {wanted}"
    return f"it defines {', '.join(own)}; {meant.split('?')[0]}{'?' if '?' in meant else ''}"
