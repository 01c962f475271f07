"""The budget: tokens of code per package. A change may lower it, and raises it only with a reason beside the number."""

from tests import ROOT
from tests.project.size import table

BUDGET = {
    "src/regard": {
        "engines": 128_400,
        "conformance": 100_900,
        "lens": 76_000,
        "torch": 51_700,
        "learn": 43_300,
        "parallel": 37_400,
        "audits": 33_100,
        "language": 31_300,
        "ledger": 30_400,
        "models": 25_000,
        "api": 22_700,
        "bench": 22_500,
        "cli": 20_300,
        "common": 15_800,
        "top": 600,
    },
    "tests": {"sum": 574_700},
}


def test_no_package_grows():
    """What a feature adds, something else has to give up: see CONTRIBUTING.md."""
    sizes = {name: size for name, (size, _) in table(ROOT / "src" / "regard").items()}
    assert {name: size for name, size in sizes.items() if size > BUDGET["src/regard"].get(name, 0)} == {}
    assert sum(size for size, _ in table(ROOT / "tests").values()) <= BUDGET["tests"]["sum"]
