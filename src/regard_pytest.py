"""The pytest plugin of regard. It is beside the package, so that pytest starts without loading regard, which is
loaded when `--conform` or the fixture `conform` is used.
"""

from __future__ import annotations

import pytest

LEVELS = ("runs", "textbook", "edges", "gradients", "isolation", "scale")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("regard", "conformance of an attention function (regard)")
    group.addoption(
        "--conform",
        metavar="FUNCTION",
        help="Add the cases of regard's conformance suite for module:function or FILE.py:function.",
    )
    group.addoption("--conform-adapter", metavar="FILE", help="JSON file with the conventions of the function.")
    group.addoption(
        "--conform-level",
        metavar="LEVEL",
        type=int,
        choices=range(len(LEVELS)),
        help=f"Highest level, 3 if not given: {', '.join(f'{number} {name}' for number, name in enumerate(LEVELS))}.",
    )
    group.addoption("--conform-seed", metavar="SEED", type=int, help="Seed of the cases, 0 if not given.")
    group.addoption(
        "--conform-seconds", metavar="SECONDS", type=float, help="Time that one call may take, 10 if not given."
    )


def pytest_configure(config: pytest.Config) -> None:
    for number, name in enumerate(LEVELS):
        config.addinivalue_line("markers", f"level{number}: conformance of attention, level {number} ({name})")
    given = {
        name: value
        for name in ("adapter", "level", "seed", "seconds")
        if (value := config.getoption(f"conform_{name}")) is not None
    }
    function = config.getoption("conform")
    if function is None:
        if given:
            raise pytest.UsageError(f"--conform-{min(given)} is given without --conform: say which function is judged")
        return
    from regard.conformance.pytest_plugin import Plugin

    config.pluginmanager.register(Plugin(config, function, **given), "regard-conform")


@pytest.fixture
def conform():
    """Judge an attention function: `conform(attention, level=2)` fails with the report if it breaks a law."""
    from regard.conformance.pytest_plugin import keeps_the_laws

    return keeps_the_laws
