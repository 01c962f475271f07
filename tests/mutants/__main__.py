"""`python -m tests.mutants sample | reach | run`: see the package."""

import argparse
import csv
import os
import site
import subprocess
import sys
from collections import defaultdict
from dataclasses import astuple, fields
from pathlib import Path

from tests import ROOT
from tests.mutants.sample import Mutant, sample

HERE = Path(__file__).resolve().parent
NAMES = [field.name for field in fields(Mutant)]


def read(path: Path) -> dict[int, tuple[Mutant, dict]]:
    """The mutants of a table by their numbers, with what else their lines say."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    kinds = {field.name: field.type for field in fields(Mutant)}
    return {int(row["number"]): (Mutant(*(kinds[name](row[name]) for name in NAMES)), row) for row in rows}


def write_sample(folder: Path, count: int, seed: int) -> None:
    with open(folder / "mutants.tsv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["number", *NAMES])
        table.writerows([number, *astuple(mutant)] for number, mutant in enumerate(sample(count, seed)))


def reach(folder: Path, arguments: list[str]) -> None:
    """Runs the tests under probes: folder/reached-* say who reached what, folder/times.jsonl how long each took."""
    hook = Path(site.getsitepackages()[0]) / "regard_reach.pth"
    hook.write_text(
        f"import os; 'REGARD_REACH' in os.environ and __import__('runpy').run_path({str(HERE / 'probe.py')!r})\n"
    )
    for cached in (ROOT / "src").rglob("__pycache__/*.pyc"):
        cached.unlink()  # which were compiled without probes
    environment = os.environ | {"REGARD_REACH": str(folder)}
    try:
        subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "tests.mutants.times", *arguments], cwd=ROOT, env=environment
        )
    finally:
        hook.unlink()
        for cached in (ROOT / "src").rglob("__pycache__/*.pyc"):
            cached.unlink()


def reached(folder: Path) -> dict[int, set[str]]:
    """The tests that reach each mutant."""
    tests = defaultdict(set)
    for file in folder.glob("reached-*"):
        for line in file.read_text(errors="replace").splitlines():
            number, _, test = line.partition("\t")
            tests[int(number)].add(test.rpartition(" (")[0])
    return tests


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("step", choices=["sample", "reach", "run"])
    parser.add_argument("--folder", type=Path, default=HERE)
    parser.add_argument("--count", type=int, default=240)
    parser.add_argument("--seed", type=int, default=2026)
    given, more = parser.parse_known_args()
    if given.step == "sample":
        write_sample(given.folder, given.count, given.seed)
    elif given.step == "reach":
        reach(given.folder, more)
