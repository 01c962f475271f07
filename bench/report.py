"""Report: the tables that `python -m bench` prints, and its JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from typing import Any

from rich import box
from rich.console import Group
from rich.table import Table
from rich.text import Text

from regard.engines.peak import Peak

from .cases import Case, Result
from .engines import ENGINES
from .interleave import Timed, means
from .learning import Learned
from .system import Figure
from .whole_models import Timed as ModelTimed

__all__ = ["as_json", "case_table", "figures_table", "machine_lines", "ratios_table", "summary_table"]


def machine_lines(machine: Mapping[str, Any], versions: Mapping[str, str], peak: Peak) -> Group:
    """The machine, its measured peaks, and the versions of the engines."""
    return Group(
        Text(f"{machine['cpu']}, {machine['cores']} cores, {machine['system']}, Python {machine['python']}"),
        Text(f"target: {machine['target']}"),
        Text(f"load average before the start: {machine['load']} (other load distorts all figures)", style="dim"),
        Text(
            f"measured peak: {peak.all:.0f} GFLOP/s float32 with {peak.threads} threads ({peak.one:.0f} with one), "
            f"{'' if math.isnan(peak.dot) else f'{peak.dot:.0f} bfloat16, '}reading {peak.read:.0f} GB/s"
        ),
        Text(", ".join(f"{ENGINES[name].title} {version}" for name, version in versions.items()), style="dim"),
    )


def case_table(case: Case, results: Iterable[Result], peak: Peak) -> Group:
    """One case: the timed engines, fastest first, and a footnote for each of the others."""
    results = list(results)
    table = blank(f"{case.name}: {case}")
    table.add_column("engine", no_wrap=True)
    table.add_column("form", style="dim")
    for heading in ("time", case.unit, "of peak", "error", "×"):
        table.add_column(heading, justify="right")
    for result in sorted((result for result in results if result.status == "timed"), key=lambda result: result.seconds):
        table.add_row(
            ENGINES[result.engine].title,
            result.form,
            duration(result.seconds),
            amount(result.rate),
            f"{result.rate / limit(case, peak):.0%}",
            f"{result.error:.1e}",
            ratio(result.ratio),
            style="bold cyan" if result.engine == "regard" else None,
        )
    notes = [
        Text(
            f"{ENGINES[result.engine].title}: {result.status}: {result.note}",
            style="red" if result.status == "wrong" else "dim",
        )
        for result in results
        if result.status != "timed"
    ]
    return Group(table, *notes)


def summary_table(cases: Iterable[Case], results: Iterable[Result], peak: Peak) -> Table:
    """regard against the best peer, one line per case."""
    found: dict[str, list[Result]] = {}
    for result in results:
        if result.status == "timed":
            found.setdefault(result.case, []).append(result)
    table = blank("regard against the best peer")
    table.add_column("case", no_wrap=True)
    for heading in ("regard", "GFLOP/s", "of peak", "best peer"):
        table.add_column(heading, justify="right")
    table.add_column("which")
    table.add_column("×", justify="right")
    for case in cases:
        ours = next((result for result in found.get(case.name, []) if result.engine == "regard"), None)
        peers = [result for result in found.get(case.name, []) if result.engine != "regard"]
        best = min(peers, key=lambda result: result.seconds, default=None)
        table.add_row(
            case.name,
            *(
                (
                    duration(ours.seconds),
                    amount(ours.rate) + (" GB/s" if case.unit == "GB/s" else ""),
                    f"{ours.rate / limit(case, peak):.0%}",
                )
                if ours
                else ("–", "–", "–")
            ),
            *((duration(best.seconds), ENGINES[best.engine].title) if best else ("–", "–")),
            ratio(ours.ratio) if ours else "–",
        )
    return table


def limit(case: Case, peak: Peak) -> float:
    """The peak of the machine in the unit of the case."""
    if case.task == "decode":
        return peak.read
    return peak.of(case.dtype)


def model_table(tasks: Iterable[ModelTimed], overhead: float) -> Table:
    """Whole models on regard and on SDPA, and the overhead of a call."""
    table = blank("a Llama of 8 layers, 512 wide, float32")
    table.add_column("task")
    for title in ("regard", "torch SDPA", "×"):
        table.add_column(title, justify="right")
    for task in tasks:
        table.add_row(task.task, duration(task.regard), duration(task.sdpa), ratio(task.ratio))
    table.add_section()
    table.add_row("overhead of a call of regard.torch.attention", duration(overhead), "", "")
    return table


def ratios_table(name: str, found: Iterable[Timed]) -> Table:
    """Every measurement of the shapes or families in the given order, and the geometric means."""
    found = list(found)
    table = blank(f"{name} of models, next to torch's SDPA")
    for heading in (name, "dtype", "task"):
        table.add_column(heading)
    for heading in ("regard", "torch SDPA", "×"):
        table.add_column(heading, justify="right")
    for each in found:
        times = duration(each.regard), duration(each.sdpa), ratio(each.ratio)
        table.add_row(each.name, each.dtype, each.task, *times)
    table.add_section()
    for mean in means(found):
        label = f"geometric mean; {mean.below} of {mean.total} below 1"
        table.add_row(label, mean.dtype, mean.task, "", "", ratio(mean.ratio))
    return table


def learning_table(models: Iterable[Learned]) -> Table:
    """Training speed and losses of the same model on different attention implementations."""
    table = blank("a language model on the source of the standard library")
    table.add_column("attention")
    for title in ("tokens/s", "loss", "held out"):
        table.add_column(title, justify="right")
    for model in models:
        table.add_row(model.name, f"{model.tokens:,.0f}", f"{model.loss:.4f}", f"{model.held_out:.4f}")
    return table


def figures_table(title: str, figures: Iterable[Figure]) -> Table:
    """Single figures, each with its unit."""
    table = blank(title)
    table.add_column("measurement")
    table.add_column("value", justify="right")
    table.add_column("", style="dim")
    for figure in figures:
        value = {"s": duration, "×": ratio, "bytes": mebibytes}[figure.unit](figure.value)
        table.add_row(figure.name, "–" if math.isnan(figure.value) else value, figure.note)
    return table


def blank(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)


def as_json(document: Any) -> Any:
    """The document with dataclasses as dictionaries, and NaN and infinity as null."""
    if is_dataclass(document) and not isinstance(document, type):
        return as_json(asdict(document))
    if isinstance(document, Mapping):
        return {key: as_json(value) for key, value in document.items()}
    if isinstance(document, list | tuple):
        return [as_json(value) for value in document]
    if isinstance(document, float) and not math.isfinite(document):
        return None
    return document


def duration(seconds: float) -> str:
    """A duration with three digits and a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:.0f} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def mebibytes(size: float) -> str:
    return f"{size / 2**20:.1f} MiB"


def amount(rate: float) -> str:
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.1f}"


def ratio(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}"
