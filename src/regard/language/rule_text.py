"""Rules from the text that `tree.writing` wrote. Reading calls nothing but the functions of the language."""

from __future__ import annotations

import ast
import functools
import re
import types
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..common.arrays import read_array
from ..common.errors import did_you_mean, refuse
from . import functions, masks, scores, selected_keys
from .captured import Captured
from .expr import Expr, Table, Var, lift, table
from .selected_keys import Selected
from .tree.syntax import LISTED, METHODS, SPELLINGS, spelled
from .tree.writing import frozen_at

SAFE = (
    ast.Module,
    ast.Assign,
    ast.NamedExpr,
    ast.Expr,
    ast.Call,
    ast.keyword,
    ast.Subscript,
    ast.Name,
    ast.Load,
    ast.Store,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.operator,
    ast.unaryop,
    ast.cmpop,
)


def read(text: str, tensors: Sequence) -> Any:
    """What the text builds from these tensors: a rule, or a tensor if the text is only its name.

    >>> import torch
    >>> read("table(x0)[query] == table(x0)[key]", [torch.tensor([0, 0, 1])])
    table[query] == table[key]
    """
    code, known = _compiled(text)
    if known is not None:
        return known
    names = {f"x{place}": each for place, each in enumerate(tensors)}
    exec(code, _functions(), names)  # `_compiled` has checked every part of the text
    return names["rule"]


@functools.lru_cache(256)
def _compiled(text: str) -> tuple[types.CodeType, Expr | None]:
    """The checked text as code, and the rule itself if it reads no tensor."""
    tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    foreign = [name for name in names if name not in _functions() and not re.fullmatch(r"[xn]\d+", name)]
    for name in foreign:
        if name.startswith("called_"):
            spelled(name.removeprefix("called_"), (), {})  # raises the error of the eager call
        if name.startswith("method_"):
            word = name.removeprefix("method_")
            known = did_you_mean(word, METHODS, LISTED)
            raise refuse(
                "expression", f"expressions have no {word!r}", f"x.{word}(…)", "a method of the language", known
            )
    plain = all(isinstance(node, SAFE) for node in nodes) and not foreign
    by_name = all(isinstance(node.func, ast.Name) for node in nodes if isinstance(node, ast.Call))
    if not (plain and by_name) or not tree.body or not isinstance(tree.body[-1], ast.Expr):
        raise refuse(
            "rule",
            "this text is not a rule",
            text[:200],
            "a text that regard wrote",
            "record the program again with this version of regard",
        )
    last = tree.body[-1]
    tree.body[-1] = ast.copy_location(ast.Assign([ast.Name("rule", ast.Store())], last.value), last)
    code = compile(ast.fix_missing_locations(tree), "<rule>", "exec")
    if any(name[0] == "x" and name not in _functions() for name in names):
        return code, None
    made: dict[str, Any] = {}
    exec(code, _functions(), made)
    return code, made["rule"]


@functools.cache
def _functions() -> dict[str, Any]:
    """What a text may call, by name: the language, the names of NumPy and torch, and methods of arrays."""
    found: dict[str, Any] = {f"called_{name}": function for name, function in SPELLINGS.items()}
    found |= {f"method_{name}": function for name, function in METHODS.items()}
    for module in (functions, masks, scores, selected_keys):
        found |= {name: getattr(module, name) for name in module.__all__}
    found |= {name: Var(name) for name in ("batch", "head", "query", "key", "score")}
    return found | {
        "table": _table,
        "captured": lambda tensor: Captured(_table(tensor)),
        "selected": _selected,
        "lift": lift,
        "number": lambda tensor: tensor.item(),  # without dimensions: a size that a program leaves open
        "float": float,
        "abs": abs,
        "slice": slice,
        "Ellipsis": Ellipsis,
        "__builtins__": {},
    }


def _table(tensor, name: str = "table") -> Table:
    """The table of a tensor; the frozen one, if the tensor shares its memory, because plans for it are cached."""
    if isinstance(tensor, Table):
        return tensor
    frozen = frozen_at(tensor)
    return table(tensor, name) if frozen is None else frozen


def _selected(tensor, start: int | list[int], keys: int) -> Selected:
    """The selected keys of a tensor of their numbers."""
    known = frozen_at(tensor)
    made = known if isinstance(known, Selected) else Selected(read_array(tensor, "selected_keys"), np.array(start))
    return made if made.keys == keys else made.of_keys(keys)


class Unread(Table):
    """A tensor without numbers as a table. source: the tensor, which may be one of the meta device."""

    def __init__(self, source: Any):
        self.source, self.array, self.name, self.frozen = source, source, "tensor", False
        self.sources, self.scored, self.digest = (source,), False, f"tensor {id(source)}"

    @property
    def kind(self) -> str:
        dtype = self.source.dtype
        return "float" if dtype.is_floating_point else "bool" if str(dtype) == "torch.bool" else "int"

    def length(self, axis: int) -> Any:
        """A size, which the program may leave open."""
        import torch

        size = self.source.shape[axis]
        return size if isinstance(size, int) else Unread(torch.scalar_tensor(size, dtype=torch.int64)).item()

    def item(self) -> Expr:
        """The only number, where it is read."""
        return self[()]

    def __array__(self, dtype=None, copy=None):
        raise refuse(
            "rule",
            "a mask or score needs the numbers of a tensor that the recorded program computes",
            f"a tensor {list(self.source.shape)} of {self.source.dtype}",
            "a rule that reads the tensor at positions",
            "build the rule before, or read the tensor in a callable: mask=lambda b, h, q, k: tensor[b, k]",
        )


def without_numbers(text: str, tensors: Sequence) -> Any:
    """The rule of a text over tensors that have no numbers; the tensor itself, if the text is only its name."""
    rule = read(text, [Unread(each) for each in tensors])
    return rule.source if isinstance(rule, Unread) else rule
