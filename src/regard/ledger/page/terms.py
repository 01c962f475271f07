"""Terms: all of a model's cost as formulas of tokens n and sequences B, for pages that compute it without Python.

The model runs at a few sizes, each number is fitted, and another size confirms it. Attention is not fitted: its calls
keep their sizes, and their rule as limits of key − query, so that pairs are exact for any n.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ...common.errors import Refused
from ...language.expr import Expr
from ..cost import PHASES, built, longest, passed
from ..counting.lines import attention_work
from ..counting.pairs import Band, band, pairs
from ..counting.parts import Key
from ..model.build import Subject
from ..model.inputs import reads_tokens
from ..stand_ins.attention import AttentionCall
from .formula import Piece, Plan, Size, fitted, plain, planned
from .samples import Sample, sampled

__all__ = ["DTYPES", "terms"]

DTYPES = ("float32", "bfloat16")  # float16 has the sizes of bfloat16
PROBE = 1 << 16  # tokens, more than a window has
TABLE = [1 << power for power in range(4, 15)]  # tokens of a rule that has no limits


def terms(model: Any, *, mask: Expr | None = None, phases: Iterable[str] = PHASES) -> dict[str, Any]:
    """All of a model as plain data: {model, parameters, limit, phases: {phase: {dtype: …}}, refused: {phase: why}}.

    Args:
        model: as for `regard.cost`.
        mask: a rule in place of the model's own in self-attention.
        phases: of prefill, decode, train; those that the model cannot run are in `refused`.

    Returns:
        Plain data for JSON. Each formula is a whole number, or pieces [from n, e, a, b, f, c, d, q]
        of ((e·n² + a·n + b)·B + f·n² + c·n + d) / q, or null where samples do not confirm one; `without` names these.

    Examples:
        >>> found = terms("gpt2", phases=["prefill"])
        >>> found["parameters"], found["phases"]["prefill"]["float32"]["cache"]
        (124439808, [[1, 0, 73728, 0, 0, 0, 0, 1]])
    """
    found: dict[str, Any] = {"phases": {}, "refused": {}}
    for dtype in DTYPES:
        made = built(model, dtype)
        found |= _about(made)
        for phase in phases:
            if phase in found["refused"]:
                continue
            try:
                found["phases"].setdefault(phase, {})[dtype] = _phase(made, phase, mask)
            except Refused as error:
                found["refused"][phase] = error.reasons[0].what
                found["phases"].pop(phase, None)
    return found


def _about(made: Subject) -> dict[str, Any]:
    """What is the same in every phase and dtype. numbers: how many parameters are in matrices, and elsewhere."""
    weights = list({id(each): each for each in made.model.parameters()}.values())
    matrices = sum(each.numel() for each in weights if each.ndim > 1)
    whole = sum(each.numel() for each in weights)
    return {
        "name": made.name,
        "model": type(made.model).__name__,
        "parameters": whole,
        "numbers": [matrices, whole - matrices],
        "limit": longest(made.config),
        "reads": reads_tokens(made.model),
    }


@dataclass(frozen=True)
class _Runs:
    """The passes of one phase. fits: a formula for each of their numbers · without: names of what has none."""

    made: Subject
    phase: str
    mask: Expr | None
    samples: dict[Size, Sample]
    fits: dict[Hashable, list[Piece] | None]
    without: list[str] = field(default_factory=list)


def _phase(made: Subject, phase: str, mask: Expr | None) -> dict[str, Any]:
    plan, most = _planned(made, phase, mask)
    samples = {size: sampled(made, *size, phase, mask) for size in plan.sizes}
    first = samples[plan.sizes[0]]
    fits = _fits(samples, plan)
    runs = _Runs(made, phase, mask, samples, fits)
    keys = dict.fromkeys(
        key for each in samples.values() for key in (*each.table, *(kind[0] for kind in each.products))
    )
    lines = [_line(key, runs) for key in keys]
    by_key = {(line["stack"], line["layer"], line["part"]): line for line in lines}
    _add_calls(by_key, runs)
    timed = _add_products(by_key, runs)
    held = {name: plain(fits.get(name)) for name in ("cache", "states", "working")}
    within = {json.dumps(plain(fits[key])) for key in fits if isinstance(key, tuple) and key[0] == "within"}
    checkpoints: dict[str, Any] = {}
    if first.fixed["checkpoints"]:
        checkpoints = {"outside": plain(fits.get("outside")), "within": [json.loads(each) for each in sorted(within)]}
    return {
        "least": plan.least,
        "most": most,
        **held,
        **first.fixed,
        "checkpoints": checkpoints or None,
        "timed": timed,
        "groups": _grouped(lines),
        "without": sorted({*runs.without, *_without(held, checkpoints, timed)}),
    }


def _without(held: dict[str, Any], checkpoints: dict[str, Any], timed: bool) -> Iterator[str]:
    """What has no formula among what is held and timed."""
    if not timed:
        yield "least time"
    names = {"cache": "KV cache", "states": "recurrent states", "working": "largest product"}
    yield from (names[name] for name, each in held.items() if each is None and not (timed and name == "working"))
    if "outside" in checkpoints and None in (checkpoints["outside"], *checkpoints["within"]):
        yield "activations with checkpoints"


def _planned(made: Subject, phase: str, mask: Expr | None) -> tuple[Plan, int | None]:
    """The sizes to run, and the most tokens that the model can be given; None without a limit."""
    if not reads_tokens(made.model):
        return planned([], None), 1
    limit, most = longest(made.config), None
    try:
        _, probe, _ = passed(made, PROBE, 1, phase, mask)
    except Refused:
        if limit is None:
            raise
        most = limit - (phase == "decode")
        _, probe, _ = passed(made, most, 1, phase, mask)
    windows: set[int] = set()
    for _, call in probe.attention:
        rule = band(call.rule)
        limits = (0, 0, 0) if rule is None else (1 - (rule.low or 0), (rule.high or 0) + 1, rule.chunk)
        windows |= {call.window or 0, *limits}
    return planned(sorted(windows), most), most


def _fits(samples: dict[Size, Sample], plan: Plan) -> dict[Hashable, list[Piece] | None]:
    """A formula for each number. A line that some sizes do not have is 0 there; other numbers have to be everywhere."""
    columns: dict[Hashable, dict[Size, int]] = defaultdict(dict)
    for size, sample in samples.items():
        for name, number in sample.numbers.items():
            columns[name][size] = number
    lined = ("forward", "backward", "moved", "saved", "weights", "kept", "within")
    for name, column in columns.items():
        if isinstance(name, tuple) and name[0] in lined:
            column |= dict.fromkeys(samples.keys() - column.keys(), 0)
    known: dict[tuple[tuple[Size, int], ...], list[Piece] | None] = {}
    fits = {}
    for name, column in columns.items():
        numbers = tuple(sorted(column.items()))
        if numbers not in known:
            known[numbers] = fitted(column, plan)
        fits[name] = known[numbers]
        if fits[name] is None and isinstance(name, tuple) and name[0] == "product" and _summed(column):
            fits[name] = fitted(_mended(column), plan)
    return fits


def _summed(column: dict[Size, int]) -> bool:
    """Whether a number is 0 for one sequence alone, as operations of a product that sums over sequences: of one
    sequence it is an outer product, which counts as elementwise.
    """
    return any(column.values()) and all((size[1] > 1) == (number > 0) for size, number in column.items())


def _mended(column: dict[Size, int]) -> dict[Size, int]:
    """The same column with what one sequence would add."""
    return {(n, B): number if B > 1 else column.get((n, 2), 0) // 2 for (n, B), number in column.items()}


def _line(key: Key, runs: _Runs) -> dict[str, Any]:
    first, fits = next(iter(runs.samples.values())), runs.fits
    stack, layer, part = key
    found: dict[str, Any] = {"stack": stack, "layer": layer, "part": part, "calls": [], "products": []}
    found["parameters"] = first.parameters.get(key, [0, 0])
    for name in ("forward", "backward", "moved", "saved", "weights", "kept"):
        found[name] = plain(fits[name, key]) if (name, key) in fits else 0
        if found[name] is None:
            runs.without.append(f"{_where(key)}: {name}")
    return found


def _where(key: Key) -> str:
    stack, layer, part = key
    return " ".join(filter(None, (stack, "" if layer is None else str(layer), part)))


def _add_calls(lines: dict[Key, dict[str, Any]], runs: _Runs) -> None:
    """Attention calls with sizes as formulas, and a rule or a table; a call that some sizes do not have is a fault."""
    samples, fits, without = runs.samples, runs.fits, runs.without
    first = next(iter(samples.values()))
    texts: dict[Key, Counter[str]] = defaultdict(Counter)
    for number, (key, call) in enumerate(first.calls):
        calls = {size: sample.calls[number][1] for size, sample in samples.items() if number < len(sample.calls)}
        sizes = {name: plain(fits["call", number, name]) for name in ("batch", "rows", "keys", "start")}
        same = len(calls) == len(samples) and len({_shape(each) for each in calls.values()}) == 1
        if not same or None in sizes.values():
            without.append(f"{_where(key)}: attention")
            continue
        shape = dict(zip(("heads", "key_heads", "depth", "value_depth", "itemsize"), _shape(call), strict=True))
        rule = _rule(calls.values())
        limits: dict[str, Any] = {} if rule is None else asdict(rule)
        if rule is None:
            limits["table"] = _table(runs, number)
            without.append(f"{_where(key)}: pairs between the lengths of a table")
        texts[key][json.dumps({**shape, **sizes, **limits})] += 1
    if len({len(sample.calls) for sample in samples.values()}) > 1:
        without.append("the number of attention calls")
    for key, counts in texts.items():
        lines[key]["calls"] = [json.loads(text) | {"count": count} for text, count in counts.items()]


def _shape(call: AttentionCall) -> tuple[int, ...]:
    return call.heads, call.key_heads, call.depth, call.value_depth, call.itemsize


def _rule(calls: Iterable[AttentionCall]) -> Band | None:
    """The one rule that allows as many pairs as each call: a window is left out where the text is shorter than it."""
    calls = list(calls)
    for rule in dict.fromkeys(band(call.rule) for call in reversed(calls)):
        if rule is not None and all(
            2 * (call.depth + call.value_depth) * call.batch * call.heads * rule.count(call.rows, call.keys, call.start)
            == attention_work(call)[0]
            for call in calls
        ):
            return rule
    return None


def _table(runs: _Runs, number: int) -> list[list[int]]:
    """(tokens, pairs of one sequence over all heads) of a call, at powers of two."""
    rows = []
    for tokens in TABLE:
        calls = sampled(runs.made, tokens, 1, runs.phase, runs.mask).calls
        if number < len(calls):
            call = calls[number][1]
            rows.append([tokens, pairs(call.rule, call.batch, call.heads, call.rows, call.keys, call.start)])
    return rows


def _add_products(lines: dict[Key, dict[str, Any]], runs: _Runs) -> bool:
    """The products of each line, equal ones once. Returns whether all have formulas, and time thus a bound."""
    fits, (first, *others) = runs.fits, runs.samples.values()
    names = ("flops", "weight", "rest")
    numbers = range(len(first.products))
    known = all(fits.get(("product", number, name)) is not None for number in numbers for name in names)
    timed = known and all(len(sample.products) == len(first.products) for sample in others)
    counts: dict[Key, Counter[str]] = defaultdict(Counter)
    for number, (key, backward, experts) in enumerate(first.products):
        sizes = {name: plain(fits.get(("product", number, name))) for name in names}
        work = {size: sample.numbers.get(("product", number, "flops"), 0) for size, sample in runs.samples.items()}
        summed = _summed(work)
        if timed or (experts is not None and sizes["flops"] is not None):
            counts[key][json.dumps({**sizes, "backward": backward, "experts": experts, "summed": summed})] += 1
    for key, found in counts.items():
        lines[key]["products"] = [json.loads(text) | {"count": count} for text, count in found.items()]
    return timed


def _grouped(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Layers with equal lines, once: {stack, layers, lines}; `layers` is [null] outside of them."""
    layers: dict[tuple[str, int | None], list[dict[str, Any]]] = {}
    for line in lines:
        own = {name: each for name, each in line.items() if name not in ("stack", "layer")}
        layers.setdefault((line["stack"], line["layer"]), []).append(own)
    groups: dict[tuple[str, bool, str], list[int | None]] = defaultdict(list)
    for (stack, layer), whole in layers.items():
        groups[stack, layer is None, json.dumps(whole)].append(layer)
    return [
        {"stack": stack, "layers": numbers, "lines": json.loads(text)} for (stack, _, text), numbers in groups.items()
    ]
