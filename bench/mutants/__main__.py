"""`python -m bench.mutants sample | reach | run`: see the package."""

import argparse
import csv
import json
import os
import site
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from bench.mutants.run import Suite, run
from bench.mutants.sample import Mutant, sample
from tests import ROOT

HERE = Path(__file__).resolve().parent


def reach(folder: Path, arguments: list[str]) -> None:
    """Runs the tests under the probe: folder/reached-* say who calls what, folder/times.json how long each takes."""
    hook = Path(site.getsitepackages()[0]) / "regard_reach.pth"
    probe = f"__import__('runpy').run_path({str(HERE / 'probe.py')!r})"
    hook.write_text(f"import os; 'REGARD_REACH' in os.environ and {probe}\n")
    words = [sys.executable, "-m", "pytest", "-p", "bench.mutants.times", *arguments]
    try:
        subprocess.run(words, cwd=ROOT, env=os.environ | {"REGARD_REACH": str(folder)})
    finally:
        hook.unlink()


def suite(folder: Path) -> Suite:
    """What `reach` noted."""
    noted = Suite(json.loads((folder / "times.json").read_text()))
    for file in folder.glob("reached-*"):
        for line in file.read_text(errors="replace").splitlines():
            path, first, test = line.split("\t", 2)
            noted.reached[f"src/regard/{path}"][int(first)].add(test)
    return noted


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.mutants")
    parser.add_argument("step", choices=["sample", "reach", "run"])
    parser.add_argument("--folder", type=Path, required=True, help="where the steps keep what they find")
    parser.add_argument("--count", type=int, default=240, help="of sample: how many changes")
    parser.add_argument("--seed", type=int, default=2026, help="of sample")
    parser.add_argument("--limit", type=float, default=600, help="of run: seconds of tests for one change")
    parser.add_argument("--workers", type=int, default=2, help="of run: how many changes at a time")
    parser.add_argument("--only", type=int, nargs="*", help="of run: numbers of changes")
    given, more = parser.parse_known_args()
    folder = given.folder.resolve()
    folder.mkdir(exist_ok=True)
    drawn = folder / "mutants.json"
    if given.step == "sample":
        drawn.write_text(json.dumps([asdict(mutant) for mutant in sample(given.count, given.seed)], indent=1))
    elif given.step == "reach":
        reach(folder, more)
    else:
        mutants = dict(enumerate(Mutant(**fields) for fields in json.loads(drawn.read_text())))
        with open(folder / "result.tsv", "w", newline="", encoding="utf-8") as file:
            table = csv.writer(file, delimiter="\t", lineterminator="\n")
            table.writerow(["number", "path", "line", "kind", "before", "after", "noticed", "by"])

            def note(number: int, *answer: str) -> None:
                table.writerow([number, *[*asdict(mutants[number]).values()][:5], *answer])
                file.flush()
                print(number, mutants[number].path, mutants[number].line, *answer, flush=True)

            chosen = {n: mutants[n] for n in given.only or mutants}
            run(folder, chosen, suite(folder), given.limit, given.workers, note)


if __name__ == "__main__":
    main()
