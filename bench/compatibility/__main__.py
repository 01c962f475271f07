"""The compatibility table: runs the conformance suite on every implementation and writes docs/compatibility.md.

python -m bench.compatibility                  run everything (about a quarter of an hour on two cores), write the page
python -m bench.compatibility --only NAME ...  run some, keep the other results
python -m bench.compatibility --from-results   write the page from bench/compatibility/results.json, without running
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from .listed import IMPLEMENTATIONS, Implementation
from .measure import measured, not_run, surroundings
from .page import page

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).parent / "results.json"
PAGE = ROOT / "docs" / "compatibility.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[each.name for each in IMPLEMENTATIONS])
    parser.add_argument("--from-results", action="store_true", help="write the page only")
    parser.add_argument("--jobs", type=int, default=2, help="implementations that run at the same time")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, file = given.one
        Path(file).write_text(json.dumps(measured(next(each for each in IMPLEMENTATIONS if each.name == name), ROOT)))
        return
    if not given.from_results:
        run(given.only, given.jobs)
    PAGE.write_text(page(json.loads(RESULTS.read_text(encoding="utf-8"))), encoding="utf-8")


def run(only: list[str] | None, jobs: int) -> None:
    """Runs each in a process of its own, and stores every result when it is there."""
    began = time.monotonic()
    old = json.loads(RESULTS.read_text(encoding="utf-8"))["implementations"] if only and RESULTS.exists() else []
    found = {each.name: not_run(each, "it was not run") for each in IMPLEMENTATIONS}
    found |= {each["name"]: each for each in old}
    chosen = [each for each in IMPLEMENTATIONS if only is None or each.name in only]
    chosen.sort(key=lambda each: -each.minutes)  # the longest first
    with ThreadPoolExecutor(jobs) as pool:
        for done in as_completed(pool.submit(one, each) for each in chosen):
            found[done.result()["name"]] = done.result()
            minutes = round((time.monotonic() - began) / 60, 1)
            results = surroundings() | {"minutes": minutes, "implementations": [found[e.name] for e in IMPLEMENTATIONS]}
            RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def one(implementation: Implementation) -> dict:
    """The result of one implementation."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", "bench.compatibility", "--one", implementation.name, str(file)]
        try:
            done = subprocess.run(
                command,
                cwd=ROOT,
                env=os.environ | {"TORCHINDUCTOR_CACHE_DIR": folder},  # nothing is compiled before
                capture_output=True,
                text=True,
                timeout=60 * implementation.minutes,
                check=False,
            )
            why = done.stderr.strip().splitlines()[-1:] if done.returncode else []
        except subprocess.TimeoutExpired:
            why = [f"it did not finish within {implementation.minutes} minutes"]
        found = not_run(implementation, why[0] if why else "it wrote no result")
        if file.exists() and not why:
            found = json.loads(file.read_text())
    took = time.monotonic() - began
    print(f"{implementation.name:28} level {found['mark']:5} {took:6.1f} s  {found['stopped']}", flush=True)
    return found


if __name__ == "__main__":
    main()
