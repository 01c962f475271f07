"""Interned nodes: one object for each structure, with a digest that identifies the structure."""

from __future__ import annotations

import hashlib
import itertools
import os
import weakref
from collections.abc import Iterator
from typing import Any

from ...common.caching import lock

HASHED = 1 << 16  # the most bytes of an array that is identified by its content

# By identity: class, words, and the ids of the parts.
_nodes: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
_named: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # by digest
_lock = lock()
_process = f"{os.getpid()} {os.urandom(8).hex()}"
_count = itertools.count()


def share(cls, words: tuple, *parts, **fields):
    """The node of this class with these words and parts: the existing one, or a new one.

    It has a `digest` of the structure, the same in every process unless the node reads an array that may change; the
    `tables` that it reads; their tensors, `sources`; and `scored`, whether it depends on the score. These are plain
    data, so that torch.compile can read them.
    """
    identity = (cls, *words, *map(id, parts))
    node = _nodes.get(identity)
    if node is not None:
        return node
    node = object.__new__(cls)
    fields["digest"] = _hash(repr((cls.__name__, *words, *(part.digest for part in parts))).encode())
    fields["tables"] = tuple(dict.fromkeys(table for part in parts for table in part.tables))
    fields["sources"] = tuple({id(source): source for table in fields["tables"] for source in table.sources}.values())
    fields["scored"] = words == ("score",) or any(part.scored for part in parts)
    for name, value in fields.items():
        object.__setattr__(node, name, value)
    with _lock:
        node = _nodes.setdefault(identity, node)
        _named[node.digest] = node
        return node


def known(digest: str):
    """The node with this digest, which must be alive."""
    return _named[digest]


def walk(*roots) -> Iterator:
    """Yields every node below the roots once, children before parents."""
    seen: set[int] = set()
    for root in roots:
        stack = [(root, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(node.children))


def name_of_array(array, frozen: bool) -> str:
    """The digest of an array: of its content if it is small and frozen, otherwise a unique one."""
    if frozen and array.nbytes <= HASHED:
        return _hash(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
    return f"{_process} {next(_count)}"


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def reduced(root: Any) -> tuple[Any, ...]:
    """What `__reduce__` returns for an operator or a read: each node below it once, children before parents."""
    places: dict[int, int] = {}
    steps: list[tuple[Any, ...]] = []
    for node in walk(root):
        steps.append((*_made(node), *(places[id(part)] for part in node.children)))
        places[id(node)] = len(places)
    return _rebuilt, (steps,)


def _made(node: Any) -> tuple[Any, Any]:
    """The class and the first argument of an operator or a read; None and the node itself of a variable or constant."""
    kind = type(node)
    if hasattr(kind, "table"):  # of the class: for a node without it, Python would write out the whole tree
        return kind, node.table
    return (kind, node.name) if node.children else (None, node)


def _rebuilt(steps: list[tuple[Any, ...]]) -> Any:
    nodes: list[Any] = []
    for make, first, *places in steps:
        nodes.append(first if make is None else make(first, *(nodes[place] for place in places)))
    return nodes[-1]
