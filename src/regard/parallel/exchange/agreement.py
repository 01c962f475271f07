"""Agreement: before anything travels, ranks compare what they are about to do. A refusal on one is raised on all.

With different sizes on two ranks, gloo fails on one of them and the others wait forever. So each call begins with a
message of fixed length: whether the rank refuses, and a hash of what it is about to do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import TypeVar

from ...common.errors import Reason, Refused, first_line
from .transport import Lost, Transport

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
    try:
        found, terms = prepare()
        status, text = READY, json.dumps(terms)
    except Refused as refused:
        error, status = refused, REFUSES
        text = json.dumps(
            [refused.where, [[each.what, each.given, each.expected, each.fix] for each in refused.reasons]]
        )
    except Exception as raised:  # whatever it is, the other ranks must not wait for this one
        error, status, text = raised, FAILS, json.dumps(f"{type(raised).__name__}: {first_line(raised)}")
    heads = transport.gather(f"{where}: agreement", status + hashlib.sha256(text.encode()).digest())
    if len(set(heads)) == 1 and status == READY:
        return found  # type: ignore[return-value] # what `prepare` returned, which may be None
    texts = _texts(transport, where, text)
    if error is not None and status == FAILS:
        raise error
    for kind in (FAILS, REFUSES):
        for rank, (head, said) in enumerate(zip(heads, texts, strict=True)):
            if head[:1] != kind:
                continue
            if kind == FAILS:
                raise Lost(f"{where}: rank {rank} raised {json.loads(said)}; nothing was exchanged")
            place, reasons = json.loads(said)
            names = ("what", "given", "expected", "fix")
            raise Refused(place, [Reason(one[0], **dict(zip(names[1:], one[1:], strict=True))) for one in reasons])
    raise _different(where, [json.loads(said) for said in texts])


def _texts(transport: Transport, where: str, text: str) -> list[str]:
    """The texts of all ranks, which may have different lengths."""
    mine = text.encode()
    lengths = [
        int.from_bytes(each, "little")
        for each in transport.gather(f"{where}: lengths", len(mine).to_bytes(LENGTH, "little"))
    ]
    found = transport.gather(f"{where}: details", mine.ljust(max(lengths), b"\0"))
    return [each[:length].decode() for each, length in zip(found, lengths, strict=True)]


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
