"""`python -m tests.mutants sample | reach | run`: see the package."""

import argparse
import csv
import json
import os
import site
import subprocess
import sys
from collections import defaultdict
from dataclasses import astuple, fields
from pathlib import Path

from tests import ROOT
from tests.mutants.run import Suite, run
from tests.mutants.sample import Mutant, sample

HERE = Path(__file__).resolve().parent
NAMES = [field.name for field in fields(Mutant)]


def read(path: Path) -> dict[int, Mutant]:
    """The mutants of a table by their numbers."""
    kinds = {field.name: field.type for field in fields(Mutant)}
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file, delimiter="\t")
        return {int(row["number"]): Mutant(*(kinds[name](row[name]) for name in NAMES)) for row in rows}


def write(path: Path, columns: list[str], rows) -> None:
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerows([columns, *rows])


def reach(folder: Path, arguments: list[str]) -> None:
    """Runs the tests under probes: folder/reached-* say who reached what, folder/times.jsonl how long each took."""
    hook = Path(site.getsitepackages()[0]) / "regard_reach.pth"
    probe = f"__import__('runpy').run_path({str(HERE / 'probe.py')!r})"
    hook.write_text(f"import os; 'REGARD_REACH' in os.environ and {probe}\n")
    for cached in (ROOT / "src").rglob("__pycache__/*.pyc"):
        cached.unlink()  # compiled without probes
    words = [sys.executable, "-m", "pytest", "-p", "tests.mutants.times", *arguments]
    try:
        subprocess.run(words, cwd=ROOT, env=os.environ | {"REGARD_REACH": str(folder)})
    finally:
        hook.unlink()
        for cached in (ROOT / "src").rglob("__pycache__/*.pyc"):
            cached.unlink()


def suite(folder: Path) -> Suite:
    """What `reach` found; tests that failed even without a change are left out."""
    seconds, failed = defaultdict(float), set()
    for line in (folder / "times.jsonl").read_text().splitlines():
        test, _, outcome, duration = json.loads(line)
        seconds[test] += duration
        if outcome != "passed":
            failed.add(test)
    reached = defaultdict(set)
    for file in folder.glob("reached-*"):
        for line in file.read_text(errors="replace").splitlines():
            number, _, test = line.partition("\t")
            reached[int(number)].add(test.rpartition(" (")[0])
    return Suite({test: time for test, time in seconds.items() if test not in failed}, reached)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("step", choices=["sample", "reach", "run"])
    parser.add_argument("--folder", type=Path, required=True, help="where the steps keep what they find")
    parser.add_argument("--count", type=int, default=240, help="of sample: how many changes")
    parser.add_argument("--seed", type=int, default=2026, help="of sample")
    parser.add_argument("--limit", type=float, default=600, help="of run: seconds of tests for one change")
    parser.add_argument("--workers", type=int, default=2, help="of run: how many changes at a time")
    parser.add_argument("--only", type=int, nargs="*", help="of run: numbers of changes")
    given, more = parser.parse_known_args()
    table, result = given.folder / "mutants.tsv", given.folder / "result.tsv"
    if given.step == "sample":
        given.folder.mkdir(exist_ok=True)
        write(table, ["number", *NAMES], ([n, *astuple(m)] for n, m in enumerate(sample(given.count, given.seed))))
    elif given.step == "reach":
        reach(given.folder, more)
    else:
        mutants, noticed = read(table), {}

        def note(number: int, *answer: str) -> None:
            noticed[number] = answer
            rows = ([n, *astuple(mutants[n])[:5], *noticed[n]] for n in sorted(noticed))
            write(result, ["number", *NAMES[:5], "noticed", "by"], rows)
            print(number, mutants[number].path, mutants[number].line, *answer, flush=True)

        chosen = {n: mutant for n, mutant in mutants.items() if given.only is None or n in given.only}
        run(given.folder, chosen, suite(given.folder), given.limit, given.workers, note)


if __name__ == "__main__":
    main()
