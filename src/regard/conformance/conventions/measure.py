"""Measures the conventions of a function with small calls, and compares them with what is declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

from .fields import CHOICES, Adapter
from .measuring.finding import find, with_flags
from .measuring.masks import measure_bias, measure_causal, measure_empty_rows, measure_masks, measure_window
from .measuring.numbers import (
    measure_dtypes,
    measure_gradients,
    measure_groups,
    measure_lse,
    measure_scale,
    measure_softcap,
)
from .measuring.probe import Probe
from .roles import completed
from .translate import Asks
from .validation import Parameter

# Facts of a function that no law prescribes. The others are conventions, and those of the laws count if none is
# declared.
FACTS = (
    *("name", "arrays", "parameters", "fixed", "heads", "mask_shapes", "lse_layout", "dtypes", "gradients"),
    *("returns", "expected", "confirmed", "declared"),
)
STEPS = (
    *(measure_causal, measure_masks, measure_bias, measure_window, measure_scale, measure_groups, measure_lse),
    *(measure_empty_rows, measure_softcap, measure_dtypes, measure_gradients),
)


class Deviation(NamedTuple):
    """A convention that is not the declared one, or not that of the laws although nothing else is declared.

    field: its name · expected, measured: values · words: one sentence about both
    """

    field: str
    expected: Any
    measured: Any
    words: str


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured.

    adapter: everything that was measured, and what is declared where nothing could be · evidence: words by field ·
    deviations: from what is declared or from the laws · unmeasured: why the calls could not tell a field · runs:
    whether any call ran · words: what happened if none did
    """

    adapter: Adapter
    evidence: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[Deviation, ...] = ()
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    runs: bool = True
    words: str = ""


def measure(
    session: Asks, parameters: Sequence[Parameter], declared: Adapter | None = None, function: str = ""
) -> Measured:
    """The conventions of the function that a session calls.

    parameters: those of the function · declared: its adapter · function: its qualified name

    Raises:
        Refused: if the function requires a parameter whose role nothing says.
    """
    given = declared or Adapter()
    start = completed(given, parameters)
    probe = Probe(session, start)
    if not find(probe, parameters, function):
        first = probe.ask(probe.call({"B": 1, "H": 1, "G": 1, "Q": 2, "K": 2, "D": 2, "E": 2}), start)
        return Measured(adapter=start, runs=False, words=first.words)
    for step in (with_flags, *STEPS):
        adapter, evidence = probe.adapter, dict(probe.evidence)
        step(probe)
        if probe.ended:  # what a part of the calls says may be wrong
            probe.adapter, probe.evidence = adapter, evidence
            for name in CHOICES.keys() - evidence.keys():
                probe.unknown(name, "calls hung, crashed or took too long")
            break
    deviations = [*_deviations(given, probe), *_failing_dtypes(probe)]
    names = [each.name for each in fields(Adapter) if each.name in probe.unmeasured]
    return Measured(
        adapter=_kept(given, probe.adapter),
        evidence=probe.evidence,
        deviations=tuple(deviations),
        unmeasured={name: probe.unmeasured[name] for name in names},
    )


def _kept(given: Adapter, measured: Adapter) -> Adapter:
    """The measured adapter; what is declared of facts and works is kept, even if more would."""
    changes: dict[str, Any] = {}
    for name in ("dtypes", "mask_shapes"):
        values = getattr(given, name)
        if given.declares(name) and set(values) <= set(getattr(measured, name)):
            changes[name] = values
    for name in ("empty_row", "empty_lse"):
        if _expected(given, name) == "any":
            changes[name] = "any"
    if "gradients" in given.declared and given.gradients == "none":
        changes["gradients"] = "none"
    return replace(measured, confirmed=given.confirmed, declared=given.declared, **changes)


def _expected(given: Adapter, name: str) -> Any:
    """The value that counts: the declared one, if it is confirmed, else that of the laws."""
    confirmed = given.confirmed if isinstance(given.confirmed, bool) else name in given.confirmed
    return getattr(given if confirmed else Adapter(), name)


def _deviations(given: Adapter, probe: Probe) -> list[Deviation]:
    """Where the measured conventions are not those that count."""
    found = []
    for name, words in probe.evidence.items():
        measured, expected = getattr(probe.adapter, name), _expected(given, name)
        declared = given.declares(name)
        undisputed = not declared or measured == getattr(given, name)
        if name in FACTS:
            if not declared or name == "parameters" or _agrees(name, getattr(given, name), measured):
                continue
            expected = getattr(given, name)
        elif measured == expected or expected == "any" or (_is_textbook(name, measured) and undisputed):
            continue
        who = "declared" if expected == getattr(given, name) and declared else "the textbook"
        text = f"{who}: {_shown(name, expected)}; measured: {_shown(name, measured)} ({words})"
        found.append(Deviation(name, expected, measured, text))
    return found


def _failing_dtypes(probe: Probe) -> Iterator[Deviation]:
    """Dtypes in which calls run, and calls with a mask do not."""
    measured = probe.adapter.dtypes
    for name, error in probe.failing_dtypes.items():
        words = f"{name} runs without a mask, and raises with one: {error}"
        yield Deviation("dtypes", (*measured, name), measured, words)


def _agrees(name: str, declared: Any, measured: Any) -> bool:
    """Whether a declared fact holds; of several values, each must."""
    if name in ("dtypes", "mask_shapes"):
        return set(declared) <= set(measured)
    return declared == measured or (name == "gradients" and declared == "none")


def _is_textbook(name: str, measured: Any) -> bool:
    """Whether a value breaks no law although it is not the usual one: pairs that count keys, heads that share none,
    and arrays that cannot be taken for (batch, heads, rows, depth)."""
    if name == "layout":
        return measured not in ("BSHD", "SBHD")
    return (name, measured) in (("window", "left-right"), ("groups", "none"))


def _shown(name: str, value: Any) -> str:
    """A value in words."""
    if name == "scale":
        return "1/√D" if value is None else f"{value:.6g}"
    if name == "always":
        return ", ".join(value) or "nothing is always masked"
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
