"""Sizes of torch.compile in rules: `key == x.shape[0]` is a rule, where Dynamo alone would make it the constant False.

Dynamo decides a comparison of its symbolic integers with any object of Python without calling the object: == is False,
!= is True, the others raise an internal error. It is taught that a rule compares by its own methods, with the size as a
tensor without dimensions, so that another size does not compile another program. Everywhere else a rule gets this
tensor by `traced.TENSOR_OF`.
"""

from __future__ import annotations

import functools
import importlib.util
import operator
import sys
from importlib.abc import MetaPathFinder
from types import ModuleType

from ...common.call_hooks import torch_if_imported
from .syntax import Syntax

MODULE = "torch._dynamo.variables.builtin"
MIRRORED = {
    operator.eq: "__eq__",
    operator.ne: "__ne__",
    operator.lt: "__gt__",
    operator.le: "__ge__",
    operator.gt: "__lt__",
    operator.ge: "__le__",
}


def teach_dynamo() -> None:
    """Makes rules comparable with sizes: now, or when the part of torch that compiles is imported."""
    if MODULE in sys.modules:
        _teach(sys.modules[MODULE])
    elif not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Waits for the import of Dynamo's operators, which takes too long to be made for everybody."""

    def find_spec(self, name, path=None, target=None):
        if name != MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_teach(module: ModuleType) -> None:
                execute(module)
                _teach(module)

            spec.loader.exec_module = execute_and_teach  # type: ignore[method-assign]
        return spec


def _teach(builtin: ModuleType) -> None:
    torch_if_imported()  # before a program is traced, which must not read sys.modules
    variable = builtin.BuiltinVariable
    original = getattr(variable, "_comparison_with_symnode", None)
    if original is None or hasattr(original, "of_regard"):
        return

    @functools.wraps(original)
    def compare(self, tx, left, right):
        for rule, size, name in ((left, right, self.fn.__name__), (right, left, MIRRORED.get(self.fn, ""))):
            if isinstance(getattr(rule, "value", None), Syntax) and self.fn in MIRRORED:
                import torch

                dtype = {bool: torch.bool, int: torch.int64}.get(size.python_type(), torch.float64)
                return rule.call_method(tx, f"__{name.strip('_')}__", [size.as_tensor(tx, dtype)], {})
        return original(self, tx, left, right)

    compare.of_regard = True  # type: ignore[attr-defined]
    variable._comparison_with_symnode = compare
    variable._binop_handlers.cache_clear()  # which hold the method as it was
    variable.call_function_handler_cache.clear()
