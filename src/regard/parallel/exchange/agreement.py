"""Agreement: before anything travels, ranks compare what they are about to do. A refusal on one is raised on all.

With different sizes on two ranks, gloo fails on one of them and the others wait forever. So each call begins with a
message of fixed length: whether the rank refuses, and the length and a hash of what it is about to do, as text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from ...common.errors import Reason, Refused, first_line
from .transport import Lost, Transport, gather

T = TypeVar("T")
READY, REFUSES, FAILS = b"=", b"?", b"!"
LENGTH = 8  # bytes of a length


def agreed(transport: Transport, where: str, prepare: Callable[[], tuple[T, dict[str, str]]]) -> T:
    """What `prepare` returns on this rank, once all ranks are about to do the same.

    prepare: returns its result, and what has to be equal on all ranks, by name.

    Raises:
        Refused: on every rank what one rank refused, word for word; or what differs between ranks.
        Lost: another error on another rank, in words; on the rank itself its own.
    """
    error: BaseException | None = None
    found: T | None = None
    content: Any
    try:
        found, terms = prepare()
        status, content = READY, terms
    except Refused as refused:
        error, status = refused, REFUSES
        content = [refused.where, [asdict(each) for each in refused.reasons]]
    except Exception as raised:  # whatever it is, the other ranks must not wait for this one
        error, status, content = raised, FAILS, f"{type(raised).__name__}: {first_line(raised)}"
    text = json.dumps(content).encode()
    head = status + len(text).to_bytes(LENGTH, "little") + hashlib.sha256(text).digest()
    heads = gather(transport, f"{where}: agreement", head)
    if len(set(heads)) == 1 and status == READY:
        return found  # type: ignore[return-value] # what `prepare` returned, which may be None
    lengths = [int.from_bytes(each[1 : 1 + LENGTH], "little") for each in heads]
    texts = gather(transport, f"{where}: details", text.ljust(max(lengths), b"\0"))
    contents = [json.loads(each[:length]) for each, length in zip(texts, lengths, strict=True)]
    if error is not None and status == FAILS:
        raise error
    kinds = [each[:1] for each in heads]
    if FAILS in kinds:
        rank = kinds.index(FAILS)
        raise Lost(f"{where}: rank {rank} raised {contents[rank]}; nothing was exchanged")
    if REFUSES in kinds:
        place, reasons = contents[kinds.index(REFUSES)]
        raise Refused(place, [Reason(**each) for each in reasons])
    raise _different(where, contents)


def _different(where: str, terms: list[dict[str, str]]) -> Refused:
    """The terms that differ, each with the ranks that have each value."""
    reasons = []
    for name in dict.fromkeys(name for each in terms for name in each):
        ranks: dict[str, list[int]] = {}
        for rank, each in enumerate(terms):
            ranks.setdefault(each.get(name, "nothing"), []).append(rank)
        if len(ranks) > 1:
            given = "; ".join(f"{_named(of)}: {value}" for value, of in ranks.items())
            reasons.append(
                Reason(
                    f"the ranks disagree about {name}",
                    given,
                    "the same on every rank",
                    "call it with the same arguments on every rank, in the same order of calls",
                )
            )
    return Refused(where, reasons)


def _named(ranks: list[int]) -> str:
    """The ranks in words, shortened."""
    shown = ", ".join(map(str, ranks[:4])) + (" …" if len(ranks) > 4 else "")
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"
