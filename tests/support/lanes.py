"""Tables of cases, and what they leave to `make sweep`: docs/project/testing.md says what is in which lane, and why."""

import os

import pytest
from hypothesis import settings

SWEEP = bool(os.environ.get("REGARD_SWEEP"))  # set by `make sweep`


def sweep(*cases) -> list:
    """The cases, for `make sweep` alone: parametrize("dtype", [np.float32, *sweep(np.float64, np.float16)])."""
    rows = (case if isinstance(case, tuple) else (case,) for case in cases)
    return [pytest.param(*row, marks=pytest.mark.sweep) for row in rows]


def by_name(names: str, table: dict):
    """A test of each row of a table, under its name there: by_name("rule", {"plain": {}, …})."""
    return pytest.mark.parametrize(names, table.values(), ids=table)


def examples(count: int, **more) -> settings:
    """So many random examples in `make sweep`, a fifth in `make test`, at least five."""
    return settings(max_examples=count if SWEEP else max(5, count // 5), deadline=None, **more)
