"""What one run of the suite says about one implementation, as data for the table."""

import importlib.metadata
import importlib.util
import math
import os
import platform
import time
from pathlib import Path

import regard as rg
from regard.conformance import conform

from .listed import Implementation

__all__ = ["column", "measured", "not_run", "surroundings"]


def measured(implementation: Implementation, root: Path) -> dict:
    """The level, the conventions, each cell of the table and the findings."""
    if importlib.util.find_spec(implementation.package) is None:
        return not_run(implementation, f"{implementation.package} is not installed")
    target = f"bench/compatibility/implementations/{implementation.target}"
    report = conform(str(root / target), level=implementation.level, seconds=implementation.seconds)
    data = report.to_json()
    return named(implementation) | {
        "version": version(implementation),
        "level": data["level"],
        "mark": data["mark"],
        "asked": data["asked"],
        "seconds": round(data["seconds"]),
        "stopped": data["stopped"],
        "cases": len(data["cases"]),
        "adapter": data["adapter"],
        "conventions": data["conventions"],
        "cells": cells(data["cases"]),
        "findings": [
            {name: each[name] for name in ("law", "level", "kind", "mistake", "measured", "cause")}
            | {"cases": each["cases"][:6], "count": len(each["cases"])}
            for each in data["findings"]
        ],
    }


def not_run(implementation: Implementation, why: str) -> dict:
    """The entry of an implementation about which nothing is known."""
    return named(implementation) | {
        "version": version(implementation),
        "level": None,
        "mark": "–",
        "asked": implementation.level,
        "seconds": 0,
        "stopped": why,
        "cases": 0,
        "adapter": {},
        "conventions": {},
        "cells": {},
        "findings": [],
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


def column(case: dict) -> str:
    """The column of the table that a case counts in."""
    name, law, level = case["id"].split("[")[1].rstrip("]"), case["law"], case["level"]
    if level == 0:
        return "runs"
    if level == 3:
        return "gradients"
    if level == 5:
        return "dropout" if law == 9 else "large"
    if law == 13:
        return "together"
    for word in ("bias", "lengths", "softcap"):
        if name.startswith(word):
            return word
    if name.startswith(("groups", "one-key-head", "length-zero")):
        return "lengths" if name.startswith("length") else "groups"
    if name.startswith("memory"):
        return "memory"
    by_law = {1: "formula", 2: "masks", 3: "causal", 4: "windows", 5: "empty rows", 6: "no leaks", 7: "lse"}
    return (by_law | {8: "sinks", 10: "dtypes", 11: "alone", 12: "infinities"})[law]


def cells(cases: list[dict]) -> dict[str, dict]:
    """What each column holds: how many cases have each status, and the largest error over the bound."""
    found: dict[str, dict] = {}
    for case in cases:
        cell = found.setdefault(column(case), {"counts": {}, "worst": None, "failing": [], "grades": []})
        status = case["status"]
        cell["counts"][status] = cell["counts"].get(status, 0) + 1
        ratio = case["error_over_bound"]
        if ratio is not None and math.isfinite(ratio) and status == "pass":
            cell["worst"] = round(max(cell["worst"] or 0.0, ratio), 4)
        if status == "fail":
            cell["failing"].append({"id": case["id"], "words": case["words"][:160]})
        if case["grade"] and status == "pass" and case["grade"] not in cell["grades"]:
            cell["grades"].append(case["grade"])
    for cell in found.values():
        cell["failing"] = cell["failing"][:8]
        cell["grades"].sort()
    return found
