"""The checks of what calls return: output, weights and those of single arguments, whether outputs match the arguments
of their calls, and if not, which known mistake explains them; and of what computed them: implementation, arrived and
implementation-difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from inspect import isroutine
from typing import Any, NamedTuple

import numpy as np

from ...common.dtypes import FLOATS
from ...common.module_settings import path_pattern
from ...common.text.units import counted
from ..finding import Difference, Finding, NotApplicable, Passed, Result, difference, found, listed, passed
from ..subject import ADDED, Raised, Subject
from .audited_run import REPORTED, AuditedCall, AuditedRun, concluded, over_heads, roundoff, rows_to_read, unit

# Compares an argument with what the layer declares: a finding, or whether they could be compared.
Compare = Callable[[AuditedCall], Finding | bool]


def rule(name: str, compare: Compare, run: AuditedRun) -> Iterator[Result]:
    """Results for one argument of the calls: whether it is what the layers declare, and whether outputs match it."""
    explained = [_explained(name, audited) for audited in run.calls]
    compared = [compare(audited) for audited in run.calls]
    read, of = explained.count(True), compared.count(True)
    measured = [f"the arguments of the call give {read} of {counted(len(run.calls), 'output')}"] if read else []
    measured += [f"the layer declares the arguments of {counted(of, 'call')}"] if of else []
    wide = [
        window
        for audited in run.calls
        if (window := audited.declared.window) is not None and window >= audited.call.shape[2]
    ]
    if name == "mask" and wide:
        measured.append(
            f"the text does not exceed the sliding windows of {counted(len(wide), 'call')}, the smallest of which is "
            f"{counted(min(wide), 'key')}: use a longer text"
        )
    reason = "no values and outputs were recorded, and no layer declares this argument"
    yield from concluded(name, explained + compared, "; ".join(measured), reason)


def output(run: AuditedRun) -> Iterator[Result]:
    """Outputs that differ from softmax(scores) · v of the recorded inputs, and that no known mistake explains.

    The expected output is computed in float64, with a bound on rounding. Cannot see what happens before q, k and v are
    made or after the output, nor calls of which no values were recorded (they are, up to 2 GB in total).
    """
    answers = [_unexplained(audited) for audited in run.calls]
    known = f"{answers.count(True)} of {len(answers)} outputs are softmax(scores) · v, or a known mistake explains them"
    yield from concluded("output", answers, known, "no values and outputs were recorded")


def _explained(name: str, audited: AuditedCall) -> Finding | bool:
    """The finding, if a mistake of this check explains an output; otherwise whether the output could be compared."""
    diagnosis = audited.diagnosis
    cause = diagnosis.cause
    if cause is None or name not in cause.checks:
        return diagnosis.status in ("matches", "explained")
    return audited.finding(
        name,
        "fault",
        f"over {counted(diagnosis.rows, 'row')} the output is that of attention with {cause.description}; "
        f"it differs by up to {diagnosis.error:.1e} from the expected output, "
        f"where rounding explains at most {diagnosis.noise:.1e} (threshold: {REPORTED} times that)",
        cause.cause,
        cause.fix,
        heads=diagnosis.heads,
        row=diagnosis.row,
    )


def _unexplained(audited: AuditedCall) -> Finding | bool:
    """The finding, if no known mistake explains an output; otherwise whether the output could be compared."""
    diagnosis = audited.diagnosis
    if diagnosis.status != "unexplained":
        return diagnosis.status != "unknown"
    cause = "the attention implementation ignores, adds or changes an argument without an error"
    fix = "compare the implementation with rg.attention on the recorded q, k, v, call by call"
    if audited.declared.training:
        cause, fix = "dropout, because the model is in training mode", "call model.eval()"
    return audited.finding(
        "output",
        "fault",
        "the output is not softmax(scores) · v of the recorded inputs: it differs by up to "
        f"{diagnosis.error:.1e} over {counted(diagnosis.rows, 'row')}, where rounding explains at most "
        f"{diagnosis.noise:.1e} (threshold: {REPORTED} times that), and no known mistake explains it",
        cause,
        fix,
        heads=diagnosis.heads,
        row=diagnosis.row,
        confidence="possible",
    )


class Fault(NamedTuple):
    """A possible fault of weights. amount (H, R): its size in each row · limit: how much rounding explains."""

    what: str
    amount: np.ndarray
    limit: float
    cause: str
    fix: str
    severity: str = "fault"


def weights(audited: AuditedCall) -> Iterator[Finding | bool]:
    """Recorded weights: rows that do not sum to 1, negative weights, weight on masked keys, a softmax over the heads,
    or in 16 bits within a model of 32. With sinks rows may sum to less than 1.

    Cannot see wrong scores: any softmax has these properties. Calls whose scores were recorded have no weights.
    """
    call = audited.call
    if call.given is None:
        return
    yield True
    rows = rows_to_read(call)
    reported = np.zeros((call.shape[0], len(rows)), bool)  # rows with a worse fault, which explains the others
    for fault in _faults(audited, rows):
        wrong = (fault.amount > fault.limit) & ~reported
        if not wrong.any():
            continue
        reported |= wrong
        heads = tuple(np.flatnonzero(wrong.any(1)).tolist())
        row, most = int(rows[np.argwhere(wrong)[0, 1]]), float(fault.amount[wrong].max())
        yield audited.finding(
            "weights",
            fault.severity,
            f"{fault.what} in {int(wrong.sum())} of {counted(wrong.size, 'row')}, by up to {most:.3g} "
            f"(threshold: {fault.limit:.1e})",
            fault.cause,
            fault.fix,
            heads=heads,
            row=row,
            numbers={"what": fault.what},
        )
        if fault.what.startswith("rows that sum"):
            break  # dropout causes both kinds of sums: report it only once


def _faults(audited: AuditedCall, rows: np.ndarray) -> Iterator[Fault]:
    """The worst first, because it explains the others. NaN is left to the check numbers."""
    call = audited.call
    given, allowed = np.nan_to_num(call.weights(rows)), call.allowed(rows)
    assert call.given is not None
    dtype, coarse = _storage_dtype(np.asarray(call.given[:, rows]))
    # One rounding of each weight, and a sum of K.
    u, steps = max(coarse, roundoff(call)), 4 * (math.sqrt(call.shape[2]) + 4)
    bound = u * steps
    complete = allowed.any(-1) & np.isfinite(call.weights(rows)).all(-1)
    yield Fault(
        "weights that sum to 1 over the heads",
        np.full(complete.shape, float(over_heads(call))),
        bound,
        "the softmax is taken over the axis of the heads",
        "take it over the keys, softmax(-1)",
    )
    yield Fault(
        "weights that are a softmax of weights",
        np.full(complete.shape, float("repeated" in call.notes)),
        bound,
        "the softmax is applied twice: its result is given to another softmax",
        "apply it once; softmax inside of the attention function means that scores are passed to it",
    )
    yield Fault(
        "weight on masked keys",
        np.where(complete, np.where(allowed, 0, np.abs(given)).sum(-1), 0),
        bound,
        "the mask is ignored, off by one, or added as a number that is not negative enough",
        "mask the scores with −infinity before the softmax",
    )
    if "combined" in call.notes:  # weights of several heads or softmaxes, as in talking heads or differential attention
        return
    yield Fault(
        "negative weights",
        -given.min(-1, initial=0),
        u,
        "these are scores, or a number was subtracted from the weights",
        "pass the weights that the softmax returned",
    )
    over = given.sum(-1) - 1
    yield Fault(
        "rows that sum to more than 1",
        np.where(complete, over, 0),
        bound,
        "dropout is active, the softmax is taken over the wrong axis, or these are not weights",
        "call model.eval(); take the softmax over the keys",
    )
    if call.sinks is not None or not (audited.declared.sinks is None or audited.declared.sinks is False):
        return
    part = str(call.notes.get("unread", "")).startswith(
        "a step"
    )  # the model may have weights for further keys in the same softmax
    yield Fault(
        "rows that sum to less than 1",
        np.where(complete, -over, 0),
        bound,
        "dropout is active, or the mask is applied after the softmax",
        "call model.eval(); mask the scores before the softmax",
        "note" if part else "fault",
    )
    yield Fault(
        "rows that sum to 1 only to the precision of few bits",
        np.where(complete, np.abs(over), 0),
        roundoff(call) * steps,
        f"every weight is representable in {dtype}: the softmax was computed in it, or rounded to it",
        "compute the softmax in float32",
        "warning" if coarse > unit(call.notes.get("dtype", "float16")) else "note",
    )


def _storage_dtype(given: np.ndarray) -> tuple[str, float]:
    """(name, unit roundoff) of the 16-bit dtype that represents all these weights exactly, or of their own dtype."""
    for row in sorted((row for row in FLOATS.values() if row.bits == 16), key=lambda row: row.digits):
        with np.errstate(over="ignore"):
            if (given.astype(row.numpy).astype(given.dtype) == given).all():
                return row.name, max(unit(given.dtype), row.roundoff)
    return str(given.dtype), unit(given.dtype)


# Words in the recorded kind of a call, by the attention implementation of transformers that makes such calls.
KINDS = {"eager": ("written out",), "sdpa": ("sdpa",), "flex_attention": ("flex",), "regard": ("regard",)}


def implementation(run: AuditedRun) -> Iterator[Result]:
    """The implementation that computed each call is the one that its layer is configured with.

    Cannot see which kernel torch chose within SDPA; layers outside of transformers have no such setting.
    """
    answers: list[Finding | bool] = []
    for audited in run.calls:
        configured = getattr(getattr(audited.layer, "config", None), "_attn_implementation", None)
        kind = str(audited.call.notes.get("kind") or audited.call.engine)
        if configured not in KINDS or not kind:
            continue
        answers.append(
            any(word in kind.lower() for word in KINDS[configured])
            or audited.finding(
                "implementation",
                "note",
                f"the layer is configured with {configured!r}, but {kind} ran (threshold: they agree)",
                "the layer computes its attention itself and ignores the setting",
                "no fix is needed if the numbers are right; a setting such as a faster kernel has no effect",
            )
        )
    measured = "the configured implementation ran in {}"
    yield from concluded("implementation", answers, measured, "no layer has an implementation setting")


def arrived(run: AuditedRun) -> Iterator[Result]:
    """Layers without a recorded call, although other layers of the same type and settings have some.

    Cannot see why: layers that are skipped look like those that compute in a compiled graph or a kernel of their own.
    """
    known = run.module is not None and not run.run.facts.get("left_out")
    recorded = {audited.call.name for audited in run.calls}
    kinds = {_kind(audited.call.name, audited.layer) for audited in run.calls}
    types, ran = {kind[1] for kind in kinds}, run.sources.ran if run.sources else set()
    silent = [
        name
        for name, part in (run.module.named_modules() if known else ())
        if name not in recorded
        and (
            _kind(name, part) in kinds
            or (type(part) in types and name not in ran and name and _owner(run, name) in ran)
        )
    ]
    answer = not silent or found(
        "arrived",
        "warning",
        f"layers {listed(silent)}",
        f"no attention call of {counted(len(silent), 'layer')} was recorded, but calls of "
        f"{counted(len(recorded), 'other layer')} of the same type and settings were (threshold: 0)",
        "the layers were skipped, or others run in their place, or they compute their attention in a way that cannot "
        "be recorded (a compiled graph, a custom kernel)",
        "run without torch.compile; for a transformers model, set one attention implementation for all layers",
        numbers={"layers": silent},
    )
    yield from concluded(
        "arrived",
        [known and answer],
        f"calls of {counted(len(recorded), 'layer')} recorded; no other layer has this type and these settings",
        "the model is not available, or some of its layers were not recorded on purpose",
    )


def _owner(run: AuditedRun, name: str) -> str:
    """The module that calls another one: the next one around it that is more than a list or a dict."""
    lists = ("ModuleList", "ModuleDict")
    while (name := name.rpartition(".")[0]) and type(run.module.get_submodule(name)).__name__ in lists:
        pass
    return name or type(run.module).__name__


def _kind(name: str, layer) -> tuple:
    """A key that is equal for layers that should compute the same: path, type, switches, and the types of the objects
    that they call, since one class may hold softmax attention in one layer and linear attention in another.
    """
    settings = {
        key: part if isinstance(part, bool | str) else type(part)
        for key, part in getattr(layer, "__dict__", {}).items()
        if key != "training" and not key.startswith("_") and not isroutine(part) and not _is_state(part)
    }
    return path_pattern(name), type(layer), frozenset(settings.items())


def _is_state(part) -> bool:
    """Whether an attribute of a layer may differ between layers that compute the same: numbers, arrays, names."""
    if isinstance(part, str):
        return any(character.isdigit() for character in part)
    is_number = isinstance(part, int | float | complex) and not isinstance(part, bool)
    return part is None or is_number or isinstance(part, list | tuple | dict | set) or hasattr(part, "shape")


KNOWN = ("eager", "sdpa")


def implementation_difference(subject: Subject) -> Finding | Passed:
    """Eager attention and SDPA give the same outputs as the attention implementation that the model is set to.

    This is compared with the given inputs, without a mask, and with padding after the tokens, because implementations
    may use another code path without one. Cannot see a mistake that both have, nor models of one implementation.
    """
    from ...common.module_settings import implementations

    own = implementations(subject.model) if subject.is_transformers else set()
    if len(own) != 1:
        raise NotApplicable("the model is not set to one attention implementation of transformers")
    (name,) = own
    measured = {
        (other, way): each
        for other in KNOWN
        if other != name
        for way, each in _differences(subject, name, other).items()
    }
    if not measured:
        raise NotApplicable(f"the model supports {name} only")
    leaks = {place: each for place, each in measured.items() if each.significant}
    if not leaks:
        words = f"{name} and {', '.join(dict.fromkeys(other for other, _ in measured))}"
        return passed("implementation-difference", words, measured.values())
    (other, _), worst = max(leaks.items(), key=lambda each: each[1].size)
    ways = [way for known, way in leaks if known == other]
    if ways == ["with padding"]:
        cause = "one of the two implementations drops the padding mask"
    elif (other, "with padding") in measured.keys() - leaks.keys():
        cause = (
            "one of the two implementations lacks a causal mask that is built only if there is padding: is_causal of "
            "the layers contradicts it"
        )
    else:
        cause = "one of the two implementations drops an argument: mask, scale, position bias, softcap or sinks"
    return found(
        "implementation-difference",
        "fault",
        f"{worst.output}, {' and '.join(ways)}",
        f"between {name} and {other}, {worst}",
        cause,
        f"audit the model with model.set_attn_implementation({other!r}) and with {name!r}: the other checks "
        "show which one is wrong",
        confidence="possible",
        row=worst.row,
        numbers=worst.numbers(other=other, ways=ways),
    )


def _differences(subject: Subject, name: str, other: str) -> dict[str, Difference]:
    """The difference between the two implementations in each case; none if the model does not support `other`."""
    ways: dict[str, Mapping[str, Any]] = {"as given": subject.inputs}
    if subject.mask is not None:
        if subject.mask.name in subject.inputs:
            ways |= subject.unmasked
        if subject.can_be_padded:
            ways["with padding"] = subject.padded(right=ADDED)
    here = {way: subject.run(inputs) for way, inputs in ways.items()}
    try:
        subject.model.set_attn_implementation(other)
        there = {way: subject.run(inputs) for way, inputs in ways.items()}
    except (ValueError, Raised) as error:
        if not isinstance(error.__cause__ or error, ValueError):  # transformers raises it for unsupported ones
            raise
        return {}
    finally:
        subject.model.set_attn_implementation(name)
    return {way: difference(subject, there[way], outputs) for way, outputs in here.items()}
