"""What one run of the suite says about one implementation, as data for the table."""

import importlib.metadata
import importlib.util
import math
import os
import platform
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import regard as rg
from regard.conformance.cases.case import Case, Result
from regard.conformance.conventions.adapter_file import to_json
from regard.conformance.conventions.measure import measure
from regard.conformance.diagnose import LAWS
from regard.conformance.judge import Judge
from regard.conformance.run import LOST, cases, limits_of
from regard.conformance.session import open_session

from .listed import Implementation

__all__ = ["cells_of", "column", "measured", "not_run", "surroundings"]


def measured(implementation: Implementation, root: Path) -> dict:
    """The level, the conventions and each cell of the table. It is what `rg.conform` reports, without the search for
    causes and counterexamples.
    """
    if importlib.util.find_spec(implementation.package) is None:
        return not_run(implementation, f"{implementation.package} is not installed")
    began = time.monotonic()
    target = str(root / "bench" / "compatibility" / "implementations" / implementation.target)
    with closing(open_session(target, implementation.seconds)) as session:
        described = session.describe()
        conventions = measure(session, described.parameters, described.adapter, described.name)
        judge = Judge(session, conventions.adapter)
        results, lost = [], 0
        for case in cases(limits_of(judge), implementation.level, 0):
            results.append(judge.result(case))
            answer = results[-1].answer
            lost += answer is not None and answer.status in ("timeout", "crashed")
            if lost >= LOST:
                break
    failed = [each.case.level for each in results if each.status == "fail"]
    failed += [LAWS.get(each.field, (0, 0))[1] for each in conventions.deviations]
    if lost >= LOST:
        failed.append(results[-1].case.level)
    level = min([*failed, implementation.level + 1]) - 1
    grades = {each.grade for each in results if each.grade is not None and each.status == "pass"}
    mark = "none" if level < 0 else f"{level}{('b' if grades == {'bits'} else 'r') if level >= 4 else ''}"
    return named(implementation) | {
        "version": version(implementation),
        "level": level,
        "mark": mark,
        "requested": implementation.level,
        "seconds": round(time.monotonic() - began),
        "stopped": f"stopped after {lost} calls that hung or ended the process" if lost >= LOST else "",
        "cases": len(results),
        "adapter": to_json(conventions.adapter),
        "conventions": dict(conventions.evidence),
        "deviations": [each.words for each in conventions.deviations],
        "cells": cells_of(results),
    }


def not_run(implementation: Implementation, why: str) -> dict:
    """The entry of an implementation about which nothing is known."""
    return named(implementation) | {
        "version": version(implementation),
        "level": None,
        "mark": "–",
        "requested": implementation.level,
        "seconds": 0,
        "stopped": why,
        "cases": 0,
        "adapter": {},
        "conventions": {},
        "cells": {},
        "deviations": [],
    }


def named(implementation: Implementation) -> dict:
    return {"name": implementation.name, "target": implementation.target, "package": implementation.package}


def version(implementation: Implementation) -> str:
    """The version of the package, and of the one it runs on."""
    if implementation.package == "regard":
        return rg.__version__
    try:
        return importlib.metadata.version(implementation.distribution or implementation.package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def surroundings() -> dict:
    """Where and when the table was made."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cpu": cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


def cpu() -> str:
    """The name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def column(case: Case) -> str:
    """The column of the table that a case counts in."""
    if case.level in (0, 3):
        return "runs" if case.level == 0 else "gradients"
    if case.level == 5:
        return "dropout" if case.law == 9 else "large"
    if case.law in (12, 13):
        return "infinities" if case.law == 12 else "together"
    by_name = {"bias": "bias", "length": "lengths", "softcap": "softcap", "groups": "groups", "memory": "memory"}
    by_name["one-key-head"] = "groups"
    for word, name in by_name.items():
        if case.name.startswith(word):
            return name
    by_law = {1: "formula", 2: "masks", 3: "causal", 4: "windows", 5: "empty rows", 6: "no leaks", 7: "lse"}
    return (by_law | {8: "sinks", 10: "dtypes", 11: "alone"})[case.law]


def cells_of(results: Sequence[Result]) -> dict[str, dict]:
    """What each column holds: how many cases have each status, and the largest error over the bound."""
    found: dict[str, dict] = {}
    for result in results:
        cell = found.setdefault(column(result.case), {"counts": {}, "worst": None, "failing": [], "grades": []})
        cell["counts"][result.status] = cell["counts"].get(result.status, 0) + 1
        if result.status == "pass" and result.ratio is not None and math.isfinite(result.ratio):
            cell["worst"] = round(max(cell["worst"] or 0.0, result.ratio), 4)
        if result.status == "pass" and result.grade and result.grade not in cell["grades"]:
            cell["grades"] = sorted([*cell["grades"], result.grade])
        if result.status == "fail" and len(cell["failing"]) < 8:
            cell["failing"].append({"id": result.case.id, "words": result.words[:160]})
    return found
