"""Run: describes the machine, checks and times every case, then the other benchmarks; prints results as they arrive."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any

from rich.console import Console

from regard.common.errors import Refused, refuse
from regard.engines import peak

from . import families, learning, lens, report, shapes, system
from . import whole_models as whole
from .accuracy import Truth
from .cases import CASES, Case, Result, choose, shrunk
from .engines import ENGINES, Engine, Form
from .fresh_process import RULES
from .interleave import FULL, QUICK, Pace, Timed, interleaved, seconds, timed
from .machine import describe

__all__ = ["run", "run_case"]

QUICK_ROWS = 512  # of a case under --quick

# Exceptions of the libraries for unsupported cases or a missing compiler; any other exception is a bug of regard.
FAILURES = (RuntimeError, ValueError, TypeError, NotImplementedError, ImportError, MemoryError)


def run(
    cases: list[str], engines: list[str], quick: bool, console: Console, progress: Callable[[str], None]
) -> dict[str, Any]:
    """Measures and prints the named cases (names, kinds, patterns, shapes, families, model, learning, lens, system; all
    for an empty list), and returns the results for JSON.
    """
    pool = {case.name: case for case in (shrunk(case, QUICK_ROWS) if quick else case for case in CASES)}
    picked = choose(cases, [*pool, "shapes", "families", "model", "learning", "lens", "system"], "case")
    chosen = [pool[name] for name in picked if name in pool]
    taking_part = installed(choose(engines, list(ENGINES), "engine"), required=bool(engines), console=console)
    machine = describe()
    versions = {engine.name: engine.version() for engine in taking_part}
    found: dict[str, Any] = {
        "machine": machine,
        "versions": versions,
        "quick": quick,
        "pace": asdict(QUICK if quick else FULL),
    }
    results: list[Result] = []
    if chosen:
        progress("measuring the peak of this machine")
        top = peak.measure()
        console.print(report.machine_lines(machine, versions, top))
        for case in chosen:
            results += run_case(case, taking_part, QUICK if quick else FULL, progress)
            console.print(report.case_table(case, [result for result in results if result.case == case.name], top))
        console.print(report.summary_table(chosen, results, top))
        found |= {"peak": top, "cases": [{"name": case.name, **asdict(case)} for case in chosen], "results": results}
    absent = whole.missing()
    measures: dict[str, tuple[Callable[..., list[Timed]], tuple]] = {
        "shapes": (shapes.measure, shapes.SHAPES[::9]),
        "families": (families.measure, families.LINES[::9]),
    }
    for name, (measure, few) in measures.items():
        needed = [package for package in absent if name == "families" or package == "torch"]
        if name in picked and needed:
            console.print(f"skipped {name}: {', '.join(needed)} not installed", style="dim")
        elif name in picked:
            compared = measure(progress, QUICK, few, 16) if quick else measure(progress)
            console.print(report.ratios_table(name, compared))
            found[name] = compared
    if "model" in picked and whole.missing():
        console.print(f"skipped model: {', '.join(whole.missing())} not installed", style="dim")
    elif "model" in picked:
        timed = whole.measure(QUICK if quick else FULL, progress, shrink=16 if quick else 1)
        spent = whole.overhead(QUICK if quick else FULL)
        console.print(report.model_table(timed, spent))
        found |= {"model": timed, "overhead": spent}
    if "learning" in picked and whole.missing():
        console.print(f"skipped learning: {', '.join(whole.missing())} not installed", style="dim")
    elif "learning" in picked:
        learned = learning.measure(4 if quick else 200, progress)
        console.print(report.learning_table(learned))
        found["learning"] = learned
    if "lens" in picked:
        seen = lens.measure(QUICK if quick else FULL, progress, shrink=16 if quick else 1)
        console.print(report.figures_table("lens", seen))
        found["lens"] = seen
    if "system" in picked:
        figures = system.measure(list(RULES)[: 1 if quick else None], progress)
        console.print(report.figures_table("system", figures))
        found["system"] = figures
    return report.as_json(found)


def installed(names: list[str], required: bool, console: Console) -> list[Engine]:
    """The installed engines; missing ones raise `Refused` if `required`, and are reported otherwise."""
    missing = {name: ENGINES[name].missing() for name in names if ENGINES[name].missing()}
    if missing and required:
        packages = " ".join(package for some in missing.values() for package in some)
        raise refuse(
            "bench", "not installed", ", ".join(missing), f"{packages} to be importable", f"pip install {packages}"
        )
    for name, absent in missing.items():
        console.print(f"skipped {ENGINES[name].title}: {', '.join(absent)} not installed", style="dim")
    return [ENGINES[name] for name in names if name not in missing]


def run_case(case: Case, engines: Iterable[Engine], pace: Pace, progress: Callable[[str], None]) -> list[Result]:
    """All engines on one case: each is prepared and checked, then the correct ones are timed, interleaved."""
    engines = [engine for engine in engines if case.task in engine.tasks]
    inputs = case.inputs()
    progress(f"{case.name}: computing the float64 reference")
    truth = Truth(inputs)
    results: dict[str, Result] = {}
    ready: dict[str, tuple[Form, float]] = {}
    for engine in engines:
        progress(f"{case.name}: preparing and checking {engine.title}")
        try:
            chosen, error = fastest(engine.forms(inputs), truth)
        except Refused as refused:
            note = "; ".join(f"{reason.what} (supports {reason.expected}; {reason.fix})" for reason in refused.reasons)
            results[engine.name] = Result(case.name, engine.name, "refused", note)
        except FAILURES as failure:
            note = f"{type(failure).__name__}: {str(failure).strip().partition(chr(10))[0]}"
            results[engine.name] = Result(case.name, engine.name, "failed", note)
        else:
            if error > truth.tolerance:
                note = f"differs from float64 by {error:.1e}"
                results[engine.name] = Result(case.name, engine.name, "wrong", note, form=chosen.label, error=error)
            else:
                ready[engine.name] = chosen, error
    progress(f"{case.name}: timing {len(ready)} engines")
    spans = interleaved({name: form.run for name, (form, _) in ready.items()}, pace)
    best = min((seconds(bursts) for name, bursts in spans.items() if name != "regard"), default=math.nan)
    for name, bursts in spans.items():
        form, error = ready[name]
        spent = seconds(bursts)
        results[name] = Result(
            case=case.name,
            engine=name,
            status="timed",
            form=form.label,
            error=error,
            seconds=spent,
            rate=inputs.work / spent / 1e9,
            ratio=best / spent,
            bursts=bursts,
        )
    ready.clear()
    gc.collect()  # dense masks and compiled models of one case can take gigabytes
    return [results[engine.name] for engine in engines]


def fastest(forms: list[Form], truth: Truth) -> tuple[Form, float]:
    """The fastest correct form and its error; if none is correct, the form with the smallest error."""
    errors = [truth.error(form.read(form.run())) for form in forms]
    if len(forms) == 1 or min(errors) > truth.tolerance:
        error, place = min((error, place) for place, error in enumerate(errors))
        return forms[place], error
    spans = [
        min(timed(form.run), timed(form.run)) if error <= truth.tolerance else math.inf
        for form, error in zip(forms, errors)
    ]
    place = spans.index(min(spans))
    return forms[place], errors[place]
