"""Compares what two checkouts of regard say of mistakes: one line for each verdict that differs.

    python bench/compare_verdicts.py OLD NEW

Each checkout judges its own examples in its own process: which probes reject each mistake of the catalog and what is
named, whole functions that break one law, faults that are planted into recorded calls, and the answers of the course.
What only one of them has is listed, too. The exit status is 1 if a verdict differs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

Verdict = tuple[str, str]  # of what, and what is said of it


def catalog() -> Iterator[Verdict]:
    """Of each mistake, which probes reject it, and the names."""
    from regard.laws.mistakes import CATALOG
    from regard.laws.probes import matrix

    for row in matrix(CATALOG):
        yield f"catalog: {row.mistakes[0].name}", f"{row.rejected} {row.named}"


def functions() -> Iterator[Verdict]:
    """Of functions that break one law, the level, and what each finding says."""
    import regard.conformance as rc
    from tests.conformance.whole import BREAKS, SOURCE, broken

    with tempfile.TemporaryDirectory() as folder:
        for name, source in {"right": SOURCE, **{each: broken(each) for each in BREAKS}}.items():
            path = Path(folder, f"{name.replace('-', '_')}.py")
            path.write_text(source)
            report = rc.conform(f"{path}:attention", level=4)
            said = [(each.law, each.mistake, each.measured, each.cause, each.fix) for each in report.findings]
            yield f"function: {name}", f"{report.mark} {said}"


def planted() -> Iterator[Verdict]:
    """Of faults in recorded calls, what the audit says."""
    import numpy as np

    import regard as rg
    from tests.audits.test_planted import PLANTED
    from tests.support.runs import alarms, call_of, checks, run_of

    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((4, 24, 16), np.float32), *rng.standard_normal((2, 2, 24, 16), np.float32)
    for name, (rules, wrong, *_) in PLANTED.items():
        out = rg.attention(*wrong(*arrays), **rules) if callable(wrong) else rg.attention(*arrays, **rules | wrong)
        found = alarms(checks(run_of(call_of(*arrays, out, **rules))))
        yield f"planted: {name}", f"{[(each.check, each.severity, each.measured, each.cause) for each in found]}"


def course() -> Iterator[Verdict]:
    """Of each part of each chapter, whether it is judged as it says."""
    from regard.learn.proof import proved
    from regard.learn.source import chapters

    for chapter in chapters():
        for part in chapter.parts:
            for what, wrong in proved(chapter, part):
                yield f"course: {chapter.path.stem}, {what}", wrong or "as stated"


def verdicts(checkout: str) -> dict[str, str]:
    """What a checkout says, from a process of its own."""
    root = Path(checkout).resolve()
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (root / "src", root)))}
    ran = subprocess.run([sys.executable, __file__, "say"], env=env, cwd=root, stdout=subprocess.PIPE, check=True)
    return dict(json.loads(line) for line in ran.stdout.decode().splitlines() if line.startswith("["))


def main(old: str, new: str) -> None:
    """Prints the differences, and their number."""
    before, after = verdicts(old), verdicts(new)
    names = [*before, *(name for name in after if name not in before)]
    changed = [name for name in names if before.get(name) != after.get(name)]
    for name in changed:
        print(f"{name}\n  before  {before.get(name, 'not there')}\n  after   {after.get(name, 'not there')}")
    print(f"{len(names)} verdicts, {len(changed)} differ")
    sys.exit(bool(changed))


if __name__ == "__main__":
    if sys.argv[1:] == ["say"]:
        for source in (catalog, functions, planted, course):
            for verdict in source():
                print(json.dumps(verdict), flush=True)
    else:
        main(*sys.argv[1:])
