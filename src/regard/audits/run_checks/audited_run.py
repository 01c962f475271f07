"""A recorded run, its calls and what their layers declare, as the checks read them; the words of findings; and a call
as the laws see it: its output next to the expected one, and which known mistake explains it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from ...common.arrays import read_array
from ...common.errors import Refused
from ...common.module_settings import LayerSettings, layer_settings, setting
from ...common.text.units import counted
from ...laws.arguments import Arguments
from ...laws.bound import Units, first_order
from ...laws.explain import explain
from ...laws.forward import Part, forward
from ...laws.mistakes import CATALOG
from ...laws.mistakes.scores import has_softcap
from ...laws.observed import Observed
from ...lens import Call, Run
from ..finding import Finding, Passed, Result, Skipped, found, listed

WINDOWS = "window", "window_size", "attention_window", "local_window"  # by other names, the own token may not count
CAPS = "softcap", "soft_cap", "logit_softcap", "logit_cap", "attn_softcap", "softcapping"
ORDERED, SPLIT = "in order", "by a view without a transpose"  # how the columns of a product become heads


class AuditedRun:
    """A recorded run; where they are available with the model that was recorded, the sources of its calls, and the
    weights that no output depends on.
    """

    def __init__(self, run: Run, subject: Any = None):
        self.run, self.subject = run, subject
        self.sources: Any = None
        self.module: Any = None
        self.unread: list[Any] = []
        if hasattr(getattr(subject, "model", None), "named_modules"):  # functions declare nothing
            self.module = subject.model
        self.calls = [AuditedCall(self, number, call) for number, call in enumerate(run.calls)]


@dataclass(frozen=True, eq=False)
class AuditedCall:
    """One call of a run."""

    of: AuditedRun
    number: int
    call: Call

    @cached_property
    def layer(self) -> Any:
        """The module that made the call; None where it is not available."""
        module, name = self.of.module, self.call.name
        if module is None:
            return None
        try:
            return module.get_submodule(name)
        except AttributeError:  # a run names the root module by its class
            return module if name == type(module).__name__ else None

    @cached_property
    def sources(self) -> Any:
        """Where q, k and v come from; None where that is unknown."""
        calls = [] if self.of.sources is None else self.of.sources.calls.get(self.call.name, [])
        before = sum(other.name == self.call.name for other in self.of.run.calls[: self.number])
        found = calls[before] if before < len(calls) else None
        windows = self.call.notes.get("windows", 1)  # they are read from the first
        sizes = found and found.shape and (found.shape[1] * windows, found.keys * windows)
        return found if sizes == self.call.shape[1:] else None

    @cached_property
    def scaled_before(self) -> float | None:
        """The scale applied to q·k before the call: how many times as long q and k are as the products that the model
        computed before; None where it is unknown.
        """
        found, config, sources = self.call.notes.get("scaled_before"), setting(self.layer, "config"), self.sources
        if sources and sources.q and sources.k:
            found = sources.q.factor * sources.k.factor
        if not isinstance(found, float) or not (sources and sources.q and sources.q.turned and config):
            return found
        from ...torch.positions.rotary import read_config

        try:  # rotary positions may make them longer, as in YaRN
            return found / getattr(read_config(config)["scaling"], "magnitude", 1.0) ** 2
        except (Refused, AttributeError):  # per type of layer, of another architecture, or not in the configuration
            return None

    @cached_property
    def declared(self) -> LayerSettings:
        """The settings in the notes of the call; those that are missing there are read from the layer. Sinks are their
        values, or whether there are some.
        """
        layer, notes = self.layer, self.call.notes
        known = layer_settings(layer)
        given = notes.get("window"), known.window, known.configured_window
        causal = notes.get("causal")
        sinks = notes.get("sinks") if known.sinks is None else read_array(known.sinks.detach().float().cpu(), "sinks")
        return replace(
            known,
            scale=_positive(float, notes.get("scale") if layer is None else known.scale),
            softcap=_positive(float, notes.get("softcap"), known.softcap, *(setting(layer, name) for name in CAPS)),
            window=_positive(int, *given, *(setting(layer, name) for name in WINDOWS)),
            causal=causal if isinstance(causal, bool) else known.causal,
            groups=_positive(int, notes.get("groups"), known.groups),
            sinks=True if known.sinks is None and _has_sinks(layer) else sinks,
            training=bool(notes.get("training", known.training)),
        )

    @cached_property
    def diagnosis(self) -> Diagnosis:
        """What is known about the output."""
        return diagnose(self.call)

    @property
    def loose(self) -> bool:
        """Whether the window is an attribute of which it is unknown what it counts, and in which layers."""
        known = layer_settings(self.layer)
        given = self.call.notes.get("window"), known.window, known.configured_window
        return self.declared.window is not None and given == (None, None, None)

    @property
    def blind(self) -> bool:
        """Whether no row attends to any key, so that weights before the softmax change nothing."""
        return "attended" in self.call.rows and not np.any(self.call.rows["attended"])

    @property
    def configured(self) -> bool:
        """Whether the layer or the model has a configuration of transformers."""
        configs = (setting(owner, "config") for owner in (self.layer, self.of.module))
        return any(setting(config, "model_type") is not None for config in configs)

    def finding(
        self,
        check: str,
        severity: str,
        measured: str,
        cause: str,
        fix: str,
        *,
        heads: Sequence[int] = (),
        row: int | None = None,
        **known: Any,
    ) -> Finding:
        """A finding about the call, or about some of its heads and the first row where it shows.

        Its place is in words, such as "call 3 (layers.1.self_attn), head 0, row 17".
        """
        words = [f"call {self.number} ({self.call.name})"]
        if heads and len(heads) < self.call.shape[0]:
            words.append(f"head{'s' if len(heads) > 1 else ''} {listed(heads)}")
        where = ", ".join([*words, *([] if row is None else [f"row {row}"])])
        head = heads[0] if len(heads) == 1 else None
        return found(check, severity, where, measured, cause, fix, call=self.number, head=head, row=row, **known)


def concluded(check: str, answers: Iterable[Finding | bool], measured: str, reason: str) -> Iterator[Result]:
    """The findings among answers; without any, `Passed` with what was measured, whose {} becomes the number of calls
    that were read, which are the answers that are true; `Skipped` with the reason if there are none.
    """
    every = list(answers)
    read, findings = every.count(True), [answer for answer in every if isinstance(answer, Finding)]
    yield from findings
    if not findings:
        yield Passed(check, measured.format(counted(read, "call"))) if read else Skipped(check, reason)


def built_scale(layer) -> float | None:
    """The scale that a layer of transformers has when its class builds it from its configuration; None if unknown."""
    given = {name: setting(layer, name) for name in ("config", "layer_idx") if setting(layer, name) is not None}
    named = inspect.signature(type(layer)).parameters.values() if "config" in given else ()
    needed = [each for each in named if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    others = [each.default for each in needed if each.name not in given]
    if not needed or any(part is inspect.Parameter.empty or type(part) is int for part in others):  # a size
        return None
    import torch  # the layer is one of torch

    with torch.device("meta"):
        fresh = type(layer)(**{each.name: given[each.name] for each in needed if each.name in given})
    return layer_settings(fresh).scale


def _has_sinks(layer) -> bool:
    """Whether the layer has sinks in another form, such as a projection that computes one for each query."""
    return layer is not None and any(
        "sink" in name for name, _ in (*layer.named_parameters(recurse=False), *layer.named_children())
    )


def _positive(kind: type, *values) -> Any:
    """The first of some values that is a positive number; integers are also numbers of kind float."""
    numbers: list[Any] = [each for each in values if isinstance(each, (int, kind)) and not isinstance(each, bool)]
    return next((kind(number) for number in numbers if number > 0), None)


ELEMENTS = 1 << 18  # weights computed together
FLOAT32 = 2.0**-24  # the rounding error of sums, which are computed in float32 for 16-bit numbers too
FIRST_ROWS = 8  # always read: a mask that is off by one has the largest effect there
MARGIN = 1  # times the noise, within which an output matches
CHUNK = 1 << 21  # weights computed together, which limits the memory for long texts
QUICK = 1 << 14  # weights computed to rule out a mistake
REPORTED = 4  # times the noise, beyond which a difference is reported

# The mistakes that the outputs of a recorded run can show: those that are reported by a check. The others change what
# a run does not hold: several batch entries, lse, gradients, fully masked rows, other values.
SEEN = tuple(mistake for mistake in CATALOG if mistake.checks)


class Difference(NamedTuple):
    """ratio (H, R): the largest difference of a row as a multiple of the rounding error that is possible there · error
    (H, R): the largest difference. NaN in rows that cannot be compared: those that are not finite, or fully masked,
    where implementations differ.
    """

    ratio: np.ndarray
    error: np.ndarray


class ObservedCall(Observed):
    """A recorded call with values and its output. wrong: the heads that are wrong, and the rows that are read"""

    def __init__(self, call: Call, wrong: Part):
        # A mistake in how weights come about does not show where the weights were recorded.
        super().__init__(call.name, arguments_of(call), 1 if call.given is None else 0)
        self.call = call
        some = wrong.heads[:4]
        count = min(len(wrong.rows), max(8, QUICK // max(1, len(some) * call.shape[2])))
        few = wrong.rows[np.linspace(0, len(wrong.rows) - 1, count).round().astype(int)]
        self.stages = Part(some[:1], few), Part(some, few), wrong  # few heads and rows rule out most mistakes

    def agrees(self, arguments: Arguments) -> bool:
        """Whether the output is that of the law with these arguments, in all heads that are wrong."""
        self.effort += 1
        return all(within(self.difference(arguments, part).ratio) for part in self.stages)

    def distance(self, arguments: Arguments) -> float:
        """The sum of squared differences in few heads and rows."""
        error = self.difference(arguments, self.stages[1]).error
        return np.inf if np.isnan(error).all() else float(np.nansum(error**2))

    def difference(self, arguments: Arguments, part: Part) -> Difference:
        """How far the output is from that of the law with these arguments."""
        step = max(1, CHUNK // max(1, len(part.rows) * self.call.shape[2]))
        parts = [part._replace(heads=part.heads[first : first + step]) for first in range(0, len(part.heads), step)]
        pieces = [difference(self.call, arguments, each) for each in parts]
        return Difference(*(np.concatenate(each) for each in zip(*pieces)))


def difference(call: Call, arguments: Arguments, part: Part) -> Difference:
    """How far the output of a call is from the one that follows from q, k, v, or from the weights that were recorded
    instead of q and k. The rounding error is that which the same computation in the dtype of the call may have.
    """
    H, Q, K = call.shape
    if call.given is None:
        q, k = call.q, call.k
    else:
        weights, q, k = call.weights(part.rows, None, part.heads), np.zeros((H, Q, 1)), np.zeros((H, K, 1))
        arguments = replace(arguments, to_weights=lambda scores, allowed, sinks: weights[None])
    assert q is not None and k is not None and call.v is not None and call.out is not None
    arrays = q[None], k[None], call.v[None]
    outcome = forward(arguments, *arrays, part)
    (noise,), _ = first_order(arguments, outcome, *arrays, units=_units(call), part=part)
    (out,), (weights,), (allowed,) = outcome.out, outcome.weights, outcome.allowed
    actual = np.asarray(call.out[part.heads][:, part.rows], np.float64)
    with np.errstate(all="ignore"):
        error = np.abs(actual - out)
        ratio = (error / noise).max(-1)
    finite = np.isfinite(out + actual).all(-1) & np.isfinite(weights).all(-1)
    comparable = finite & (allowed.any(-1) | (arguments.sinks is not None))
    return Difference(np.where(comparable, ratio, np.nan), np.where(comparable, error.max(-1), np.nan))


def within(ratio: np.ndarray) -> bool:
    """Whether at least half of the rows could be compared, and rounding explains all of their differences."""
    known = ~np.isnan(ratio)
    return bool(known.sum() * 2 >= known.size and known.any() and not (ratio[known] > MARGIN).any())


def arguments_of(call: Call) -> Arguments:
    """The arguments of a recorded call: one batch entry, and one mask and one score for everything."""
    H, Q, K = call.shape
    return Arguments(
        masks={} if call.mask is None else {"rule": call.mask},
        scores={} if call.score is None else {"softcap" if has_softcap(call.score) else "bias": call.score},
        scale=call.scale,
        start=call.start,
        sinks=call.sinks,
        heads=H,
        queries=Q,
        keys=K,
        depth=1 if call.q is None else call.q.shape[2],
        key_heads=np.arange(call.groups),
        value_heads=np.arange(call.groups if call.v is None else len(call.v)),
    )


def rows_to_read(call: Call) -> np.ndarray:
    """The rows that checks read: the first ones, and as many evenly spaced ones as fit into `ELEMENTS` weights."""
    H, Q, K = call.shape
    count = min(Q, max(FIRST_ROWS, ELEMENTS // max(1, H * K)))
    spread = np.linspace(0, Q - 1, max(1, count)).round().astype(int) if Q else np.zeros(0, int)
    return spread if count == Q else np.unique(np.concatenate([np.arange(min(FIRST_ROWS, Q)), spread]))


def over_heads(call: Call) -> bool:
    """Whether recorded weights sum to 1 over the heads instead of the keys."""
    if call.given is None or call.shape[0] < 2:
        return False
    weights = np.nan_to_num(call.weights(rows_to_read(call)))
    near = 16 * roundoff(call)
    return bool((np.abs(weights.sum(0) - 1) <= near).all() and not (np.abs(weights.sum(-1) - 1) <= near).all())


def roundoff(call: Call) -> float:
    """The unit roundoff of the coarsest dtype of the call; float64 counts as float32, because models compute their
    softmax in float32 even then.

    >>> one = np.ones((1, 1, 1))
    >>> 1 / roundoff(Call("one", 0, "keys", "keys", np.zeros((1, 1)), q=one.astype(np.float16), k=one))
    2048.0
    """
    return max(FLOAT32, *map(unit, _dtypes(call)))


def unit(dtype: Any) -> float:
    """The unit roundoff (largest relative rounding error) of a dtype; 0 for integers and for unknown names."""
    return max((float(each.eps) / 2 for each in _limits([dtype])), default=0.0)


def _dtypes(call: Call) -> Iterator[str]:
    yield from (str(array.dtype) for array in (call.q, call.v, call.out) if array is not None)
    yield str(call.notes.get("dtype", "float64")).removeprefix("torch.")


def _limits(dtypes: Iterable[Any]) -> Iterator[Any]:
    """The `finfo` of those that are floating-point dtypes, of eight bits too."""
    import ml_dtypes

    for dtype in dtypes:
        with suppress(TypeError, ValueError):
            yield ml_dtypes.finfo(dtype)


def _units(call: Call) -> Units:
    """The units of the coarsest dtype of the call. Float32 may flush numbers below 2⁻¹²⁶ to 0."""
    least = max([2.0**-126, *(float(each.smallest_subnormal) for each in _limits(_dtypes(call)))])
    return Units(roundoff(call), FLOAT32, least, np.inf)


@dataclass(frozen=True, eq=False)
class Cause:
    """Why an output is wrong. checks: names of the checks that report it · description: completes "the output is that
    of attention with …"
    """

    checks: tuple[str, ...]
    description: str
    cause: str
    fix: str


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """What is known about the output of one call.

    status: "matches", "explained" (by the cause), "unexplained", or "unknown" (values or outputs were not kept, or
    the difference may or may not be rounding)
    error: the largest difference from the expected output · noise: the rounding error that is possible there · heads:
    the heads that differ · row: the first row that differs · rows: how many rows were read
    """

    status: str
    error: float = 0.0
    noise: float = 0.0
    heads: tuple[int, ...] = ()
    row: int = 0
    rows: int = 0
    cause: Cause | None = None


def matches(call: Call) -> bool | None:
    """Whether the output matches the inputs and arguments of the call; None where that is unknown."""
    compared = None if call.q is None else _compared(call)
    return None if compared is None else not bool((compared[1].ratio > MARGIN).any())


def _compared(call: Call) -> tuple[Part, Difference] | None:
    """(the rows that are read, the difference there); None where the output cannot be compared."""
    if call.v is None or call.out is None or 0 in call.shape:
        return None
    every = Part(np.arange(call.shape[0]), rows_to_read(call))
    found = ObservedCall(call, every).difference(arguments_of(call), every)
    return None if np.isnan(found.ratio).all() else (every, found)


def diagnose(call: Call) -> Diagnosis:
    """Compares the output of a call with the expected one, and explains the difference."""
    compared = _compared(call)
    if compared is None:
        return Diagnosis("unknown")
    every, (ratio, error) = compared
    wrong = ratio > REPORTED
    worst = int(np.nanargmax(np.where(np.isnan(ratio), -1, ratio)))
    known: dict[str, Any] = {
        "noise": float(error.flat[worst] / max(ratio.flat[worst], 1e-300)),
        "rows": len(every.rows),
    }
    if not wrong.any():
        return Diagnosis("unknown" if (ratio > MARGIN).any() else "matches", float(np.nanmax(error)), **known)
    at = np.flatnonzero(wrong.any(1))
    cause = _explain(call, every._replace(heads=at))
    return Diagnosis(
        "unexplained" if cause is None else "explained",
        float(error.flat[worst]),
        heads=tuple(at.tolist()),
        row=int(every.rows[np.argwhere(wrong)[:, 1].min()]),
        cause=cause,
        **known,
    )


def _explain(call: Call, wrong: Part) -> Cause | None:
    """The known mistakes that explain the heads that are wrong."""
    seen = ObservedCall(call, wrong)
    mistakes = explain([seen], catalog=SEEN)[0].mistakes
    if seen.mistaken(mistakes) is None:
        return None
    descriptions, at = [], seen.arguments
    for mistake in mistakes:
        descriptions.append(mistake.described(at))
        at = mistake.change(at) or at
    return Cause(
        checks=tuple(dict.fromkeys(check for mistake in mistakes for check in mistake.checks)),
        description=" and ".join(descriptions),
        cause="; ".join(mistake.cause for mistake in mistakes),
        fix="; ".join(mistake.fix for mistake in mistakes),
    )
