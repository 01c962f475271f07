"""What a served page requests beyond its run: another text through the model, and changed rules."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...common.errors import refuse
from ...language.expr import key, query
from ...language.masks import causal, window
from ..open_model import OpenModel
from ..runs.axis import named
from ..runs.changed import RECORDED
from ..runs.first_view import choose
from ..runs.run import Run
from .queries import about, calls_of, plain
from .routes import HeldRuns, index

LONGEST = 1 << 20  # bytes of a request
EVERY = 1 << 22  # weights of a run: above this, the rules of one call are changed instead of all

Findings = Sequence[Mapping[str, Any]]


class Live:
    """New runs for a served page. Each is added to `runs`, from which the page then requests its numbers.

    record: the run of another text; None if the model is not known · find: the findings of an audit of a run, as JSON.
    """

    def __init__(
        self,
        runs: HeldRuns,
        record: OpenModel | None = None,
        find: Callable[[Run], Findings] | None = None,
    ):
        self.runs, self.record, self.find = runs, record, find
        self._recording = threading.Lock()  # a model records one text at a time

    def answer(self, what: str, body: bytes) -> bytes:
        """The JSON of a new run: its number, and what the page knows about it.

        what: "text", "without", or "rules", of which the page already knows the rest. Refused: anything that is not
        understood.
        """
        given = _read(body)
        if what == "text":
            run, findings = self._text(given)
            known = described(run, findings)
        elif what == "without":
            run = self._without(given)
            known = {**about(run), "findings": []}  # what is shown stays
        else:
            run = self._rules(given)
            known = {**calls_of(run), "findings": []}  # the text, and what is shown, stay
        return json.dumps({"number": self.runs.add(run), "run": known}, allow_nan=False).encode()

    def _text(self, given: Mapping[str, Any]) -> tuple[Run, Findings]:
        text = given.get("text")
        if not isinstance(text, str) or not text.strip():
            raise refuse("text", "no text", repr(text)[:40], "a text", "enter some words")
        with self._recording:
            run = self._model()(text)
        return run, () if self.find is None else self.find(run)

    def _without(self, given: Mapping[str, Any]) -> Run:
        """The run of the same text without a head; with a row and a key, without this edge of the head."""
        run = self.runs[given.get("n")]
        at = run.calls[index("call", str(given.get("call")), len(run.calls))]
        h = index("head", str(given.get("head")), at.shape[0])
        what, change = f"without head {h} of {at.name}", {"output": 0}
        if given.get("key") is not None:
            i, j = (index(name, str(given.get(name)), size) for name, size in zip(("query", "key"), at.shape[1:]))
            words = named(run.axes[at.queries], i), named(run.axes[at.keys], j)
            what = f"without {words[0]} → {words[1]} in head {h} of {at.name}"
            change = {"mask": ~((query == at.start + i) & (key == j))}
        with self._recording:
            return self._model().without(run.text, what, layer=at.name, head=h, **change)

    def _model(self) -> OpenModel:
        """The model of the first run. Refused: if it is not known."""
        if self.record is None:
            raise refuse(
                "text",
                "the model of this run is not known",
                "a recorded run",
                "a run that this command recorded",
                "serve a model and a text: regard look MODEL TEXT --serve",
            )
        return self.record

    def _rules(self, given: Mapping[str, Any]) -> Run:
        run, call, width = self.runs[given.get("n")], given.get("call"), given.get("window")
        masks: dict[Any, Any] = {RECORDED: RECORDED, "none": None, "causal": causal()}
        if isinstance(width, int) and not isinstance(width, bool) and width > 0:
            masks |= {"window": window(width, width - 1), "causal window": window(width)}
        mask = given.get("mask")
        if not isinstance(mask, str) or mask not in masks:
            expected = ", ".join(masks)
            raise refuse("rules", "unknown mask", repr(mask)[:40], expected, "choose one of them")
        size = sum(H * Q * K for H, Q, K in (each.shape for each in run.calls))
        only = None if size <= EVERY or call is None else [call]
        return run.changed(
            temperature=given.get("temperature", 1.0), scale=given.get("scale"), mask=masks[mask], calls=only
        )


def described(run: Run, findings: Findings, start: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A run as the page knows it: axes, calls and figures, findings, what it shows first, and its Python."""
    begin = choose(run, findings=findings).place if start is None else dict(start)
    return {**about(run), "findings": plain(list(findings)), "start": begin}


def _read(body: bytes) -> Mapping[str, Any]:
    try:
        given = json.loads(body)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise refuse("request", "not a JSON object", repr(body[:40]), "an object", "send an object")
    return given
