"""Rules as text that holds no array: programs of torch keep a rule as its text and the tensors that it reads.

    table(x0, 'document')[query] == table(x0, 'document')[key]

x0, x1, … are the tensors. `rule_text` reads it.
"""

from __future__ import annotations

import ctypes
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from ...common.arrays import as_tensor, is_tensor, read_array
from .interning import walk
from .printing import written
from .tables import Array

DEEP = 20  # levels of an expression in one statement: Python cannot parse parentheses that are nested too deeply
DEEPEST = 90  # nested parentheses in the text of a whole expression
EACH = 200  # characters per node beyond which shared nodes are written once


def write(rule: Any, tensors: list, tensor_of: Callable[[Any], Any] | None = None) -> str:
    """The text of a rule; the tensors that it reads are appended to the list. tensor_of: the tensor of a table.

    >>> from regard.language.expr import key, query
    >>> write((key <= query) & (query - key < 4), [])
    '(key <= query) & (query - key < 4)'
    """
    places = []
    for found in rule.tables:
        tensor = (tensor_of or operand)(found)
        same = [place for place, known in enumerate(tensors) if known is tensor]
        places.append(same[0] if same else len(tensors))
        tensors += [] if same else [tensor]
    return "".join([part if isinstance(part, str) else f"x{places[part]}" for part in pieces(rule)])


def pieces(rule: Any, inside: bool = False) -> tuple[str | int, ...]:
    """The text of a rule as strings, and the numbers of tensors between them. inside: as a part of another rule."""
    number = {id(found): place for place, found in enumerate(rule.tables)}
    names = {id(found): found.written(f"\0{number[id(found)]}\0") for found in rule.tables}
    sign, between = (":=", ", ") if inside else ("=", "; ")
    lines = [f"{name} {sign} {written(node, names, float('inf'))}" for node, name in _statements(rule, names)]
    text = between.join([*lines, written(rule, names, float("inf"))])
    parts = (f"({text})[-1]" if inside and lines else f"({text})" if inside else text).split("\0")
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts))


def evaluable(rule: Any, names: dict[int, str]) -> str:
    """The text of a rule that `eval` reads; names: those of its tables, by id. Where shared nodes make it much longer
    than the rule, or it is too deep, they have names: (n0 := key + key, n1 := n0 + n0, n1 * n1)[-1].
    """
    limit = EACH * sum(1 for _ in walk(rule)) + sum(map(len, names.values()))
    plain = written(rule, names, limit)
    steps = ((sign in "([") - (sign in ")]") for sign in plain)
    if len(plain) <= limit and max(itertools.accumulate(steps), default=0) <= DEEPEST:
        return plain
    prefix = "n"
    while any(name.startswith(prefix) and name[len(prefix) :].isdigit() for name in names.values()):
        prefix += "_"
    named = dict(names)
    parts = [f"{name} := {written(node, named, float('inf'))}" for node, name in _statements(rule, named, prefix)]
    return f"({', '.join([*parts, written(rule, named, float('inf'))])})[-1]"


def _statements(rule: Any, names: dict[int, str], prefix: str = "n"):
    """Yields (node, name) of each node that has a statement of its own; its name is added to `names` afterwards."""
    parents: dict[int, int] = {}
    for node in walk(rule):
        for child in node.children:
            parents[id(child)] = parents.get(id(child), 0) + 1
    depth: dict[int, int] = {}
    count = 0
    for node in walk(rule):
        depth[id(node)] = 1 + max((depth[id(child)] for child in node.children), default=0)
        apart = node is not rule and bool(node.children) and (parents[id(node)] > 1 or depth[id(node)] > DEEP)
        if apart:
            yield node, f"{prefix}{count}"
            names[id(node)] = f"{prefix}{count}"
            depth[id(node)], count = 0, count + 1


_memory: weakref.WeakValueDictionary[int, Array] = weakref.WeakValueDictionary()  # frozen tables by their address


def operand(found: Array) -> Any:
    """The tensor of a table; that of a NumPy array shares its memory."""
    if is_tensor(found.source):
        return found.source
    numbers = found.memory
    if any(step < 0 for step in numbers.strides):  # torch has no negative strides
        numbers = numbers.copy()
    if found.frozen:
        _memory[numbers.ctypes.data] = found
    return as_tensor(numbers if numbers.flags.writeable else _unlocked(numbers))


def _unlocked(numbers: np.ndarray) -> np.ndarray:
    """The memory of a read-only array as a writeable one, because torch warns of others; nothing writes to it."""
    size = numbers.itemsize + sum(
        (count - 1) * step for count, step in zip(numbers.shape, numbers.strides, strict=True)
    )
    memory = (ctypes.c_char * size).from_address(numbers.ctypes.data)
    memory.owner = numbers  # which lives as long as this view of it
    return np.ndarray(numbers.shape, numbers.dtype, memory, strides=numbers.strides)


def frozen_at(tensor) -> Any:
    """The frozen table whose memory a tensor shares, or None."""
    found = _memory.get(tensor.data_ptr()) if is_tensor(tensor) and tensor.is_cpu else None
    if found is None:
        return None
    numbers = read_array(tensor, "table")
    form = (numbers.shape, numbers.strides, numbers.dtype)
    return found if form == (found.memory.shape, found.memory.strides, found.memory.dtype) else None
