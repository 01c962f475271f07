"""The service of a judged function: it is loaded, and called as the parent requests."""

from __future__ import annotations

import dataclasses
import pickle
import sys
import warnings
from collections.abc import Callable

from ...common.errors import Refused, refuse
from ...laws.call import Answer
from ...sandbox.messages import packed, said
from ..conventions.translate import Absent
from .one_call import Callee, ReportedEvents
from .target import WHERE


def service() -> Callable[[bytes], bytes]:
    """The replies: to the first request, which names the function, and to calls of it."""
    if not sys.warnoptions:
        warnings.simplefilter("ignore")  # a warning would count as printed by the function
    callee: Callee | None = None

    def reply(request: bytes) -> bytes:
        nonlocal callee
        try:
            content = pickle.loads(request)
            if callee is not None:
                return message(callee.answer(*content))
            callee = Callee(content.load(), ReportedEvents(), (BaseException,))
            return packed({"description": dataclasses.asdict(callee.description)}, {})
        except Absent as absent:
            return packed({"absent": [absent.role, absent.words]}, {})
        except Refused as refused:
            return refusal(refused)
        except Exception as error:
            # What prepares the call failed: an array library that is not installed, or a state that the function left.
            expected, fix = "a call that can be prepared", "change what the adapter declares, or install what it needs"
            return refusal(refuse(WHERE, "the call cannot be prepared", said(error), expected, fix))

    return reply


def message(answer: Answer) -> bytes:
    """An answer as a reply."""
    fields = dict(vars(answer))
    arrays = {name: fields.pop(name) for name in ("out", "lse", "weights")}
    arrays |= {f"gradient {role}": array for role, array in fields.pop("gradients").items()}
    return packed(fields, {name: array for name, array in arrays.items() if array is not None})


def refusal(refused: Refused) -> bytes:
    """A refusal as a reply."""
    return packed({"refused": [[each.what, each.given, each.expected, each.fix] for each in refused.reasons]}, {})
