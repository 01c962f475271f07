"""One node for each structure: what is written twice is built once, and has a name that tells it from every other
structure.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import weakref
from collections.abc import Iterator

from ...common.caching import lock

__all__ = ["compiled", "known", "name_of_array", "share", "traced", "walk"]

HASHED = 1 << 16  # bytes of an array that are worth reading to name it by its content

_nodes: weakref.WeakValueDictionary = (
    weakref.WeakValueDictionary()
)  # by identity: class, words, and the ids of the parts
_named: weakref.WeakValueDictionary = weakref.WeakValueDictionary()  # by digest
_lock = lock()
_process = f"{os.getpid()} {os.urandom(8).hex()}"
_count = itertools.count()


def share(cls, words: tuple, *parts, **fields):
    """The node of this class, these words and these parts: the one that exists already, or a new one.

    It gets `digest`, a name for the structure: the same in every process, unless the node reads an array that may
    change; `tables`, which it reads; `sources`, the tensors among these; `scored`, whether it depends on the score.
    These are plain data, so that torch.compile can read them off a rule.
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
    """What has this digest; it must be in use somewhere."""
    return _named[digest]


def walk(*roots) -> Iterator:
    """Every node below the roots once, children before parents."""
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
    """The digest of an array: its content where that is small and stays; otherwise one that no other array ever has."""
    if frozen and array.nbytes <= HASHED:
        return _hash(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
    return f"{_process} {next(_count)}"


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def traced() -> bool:
    """Whether torch.compile is reading this code instead of running it; where torch is used, its own answer stands
    here.
    """
    return False


class Compiled:
    """The nodes of rules that are part of a compiled program, as attributes: there torch.compile finds what it has
    built.
    """

    def hold(self, node) -> str:
        setattr(self, node.digest, node)
        return node.digest


compiled = Compiled()
