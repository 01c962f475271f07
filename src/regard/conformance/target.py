"""Target: the name of a function on the command line, and how the function is loaded from it."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from ..common.errors import Reason, Refused, did_you_mean, refuse, refuse_all
from ..sandbox.messages import one_line, said

WHERE = "conform"
FORMS = "module:function or FILE.py:function"


@dataclass(frozen=True)
class Target:
    """A function by name. source: a module or a file · names: the attributes that lead from it to the function."""

    source: str
    names: tuple[str, ...]
    is_file: bool

    def __str__(self) -> str:
        return f"{self.source}:{'.'.join(self.names)}"

    @classmethod
    def parse(cls, text: str) -> Target:
        """Reads `pkg.mod:function`, `FILE.py:function` or `FILE.py:Class.method`. A file has to exist."""
        source, colon, path = text.rpartition(":")
        if not colon or not source or not path:
            raise refuse(WHERE, "the function is not named", repr(text), FORMS, f"write {_complete(text)}")
        is_file = source.endswith(".py") or os.sep in source or Path(source).is_file()
        reasons = _wrong_file(source) if is_file else _wrong_module(source)
        names = tuple(path.split("."))
        if not all(name.isidentifier() for name in names):
            fix = "write the name only, without parentheses or arguments"
            reasons.append(Reason("the function's name is not a name of Python", repr(path), FORMS, fix))
        refuse_all(WHERE, reasons)
        return cls(source, names, is_file)

    def load(self, any_value: bool = False) -> Any:
        """Imports the module or the file and returns the function, or whatever has the name. This runs its code."""
        found: Any = self._module()
        owner: Any = None
        for name in self.names:
            owner = found
            try:
                found = getattr(owner, name)
            except AttributeError:
                raise self._not_found(owner, name) from None
        if isinstance(found, type):
            return self._instance(found)
        if isinstance(owner, type) and isinstance(inspect.getattr_static(owner, self.names[-1]), FunctionType):
            return getattr(self._created(owner), self.names[-1])  # a method needs an object
        if not callable(found) and not any_value:
            fix = f"name a function of {self.source}{_suggest('', _callables(owner))}"
            raise refuse(WHERE, f"{self} cannot be called", type(found).__name__, "a function", fix)
        return found

    def _module(self) -> ModuleType:
        try:
            if not self.is_file:
                if not {"", os.getcwd()} & set(sys.path):
                    sys.path.insert(0, os.getcwd())  # as `python -m` does
                return importlib.import_module(self.source)
            return _run_file(Path(self.source).resolve())
        except (Exception, SystemExit) as error:  # the import runs the user's code, which may raise anything
            raise self._not_imported(error) from error

    def _not_imported(self, error: BaseException) -> Refused:
        missing = getattr(error, "name", None) if isinstance(error, ModuleNotFoundError) else None
        if missing and not self.is_file and f"{self.source}.".startswith(f"{missing}."):
            given, fix = said(error), f"run in the folder that contains {missing}, or pass FILE.py:function"
        elif "no known parent package" in str(error):
            given, fix = said(error), "name the module inside its package, as package.module:function"
        else:
            frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
            here = f", at {one_line(frames[-1].filename)}:{frames[-1].lineno}" if frames[2:] else ""
            run = f"python {self.source}" if self.is_file else f"python -c 'import {self.source}'"
            given, fix = said(error) + here, f"change it until `{run}` runs"
        return refuse(WHERE, f"{self.source} cannot be imported", given, "an import without errors", fix)

    def _not_found(self, parent: object, name: str) -> Refused:
        owner = self.source if isinstance(parent, ModuleType) else getattr(parent, "__name__", type(parent).__name__)
        known = _callables(parent)
        expected = "the name of a function" if known else "a function; it has none"
        fix = _suggest(name, known) or f"; define {name}"
        return refuse(WHERE, f"{owner} has no {name}", str(self), expected, fix.removeprefix("; "))

    def _instance(self, kind: type) -> Callable[..., Any]:
        """An object of a class, or its method forward."""
        own = {name for base in kind.__mro__ for name in vars(base)}
        if not own & {"__call__", "forward"}:
            given = f"class {kind.__name__} without __call__ or forward"
            fix = "name one of its methods, as in " + f"{self}.{next(iter(_callables(kind)), 'method')}"
            raise refuse(WHERE, f"{self} cannot be called", given, "a function", fix)
        instance = self._created(kind)
        return instance if "__call__" in own else instance.forward

    def _created(self, kind: type) -> Any:
        try:
            return kind()
        except Exception as error:  # the user's __init__ may raise anything
            fix = f"write a function that creates {kind.__name__} and calls it, and name that function"
            raise refuse(
                WHERE, f"{kind.__name__} cannot be created", said(error), "a class that needs no arguments", fix
            ) from error


def _run_file(file: Path) -> ModuleType:
    """The module of a file; its folder is searched for imports, as if the file were run."""
    sys.path.insert(0, str(file.parent))
    name = file.stem if file.stem not in sys.modules and file.stem.isidentifier() else f"_judged_{abs(hash(file))}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None and spec.loader is not None  # the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _complete(text: str) -> str:
    """What the caller may have meant by a text without a colon."""
    if text.endswith(".py"):
        return f"{text}:NAME, with the name of a function in that file"
    module, dot, function = text.rpartition(".")
    return f"{module}:{function}" if dot and module and function else "the part before and the part after the colon"


def _wrong_file(source: str) -> list[Reason]:
    file = Path(source)
    if not file.exists():
        near = sorted(str(file.parent / each.name) for each in file.parent.glob("*.py")) if file.parent.is_dir() else []
        fix = _suggest(source, near).removeprefix("; ") or f"check the path; the current folder is {os.getcwd()}"
        return [Reason("the file does not exist", source, "a file of Python", fix)]
    if not file.is_file() or file.suffix != ".py":
        given = f"{source}, a folder" if file.is_dir() else source
        fix = "name a file, or a module as in package.module:function"
        return [Reason("the source is not a file of Python", given, "FILE.py:function", fix)]
    return []


def _wrong_module(source: str) -> list[Reason]:
    if all(part.isidentifier() for part in source.split(".")):
        return []
    fix = "write package.module:function; a file ends in .py"
    return [Reason("the module's name is not a name of Python", repr(source), FORMS, fix)]


def _callables(owner: object) -> list[str]:
    """The public names of a module or class that can be called; those defined there come first."""
    home = getattr(owner, "__name__", None)
    found = {
        name: value
        for name, value in getattr(owner, "__dict__", {}).items()
        if not name.startswith("_") and callable(value)
    }
    return sorted(found, key=lambda name: getattr(found[name], "__module__", None) != home)


def _suggest(name: str, known: Iterable[str]) -> str:
    """`; did you mean …`, from at most the twelve closest names."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=12, cutoff=0.0) if name else known[:12]
    return f"; {did_you_mean(name, near)}" if near else ""
