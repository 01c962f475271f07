"""The budget: tokens of code per package. A change may lower it, and raises it only with a reason beside the number."""

from tests import ROOT
from tests.project.size import table

BUDGET = {
    "src/regard": {
        "engines": 127_400,
        "conformance": 94_100,
        "lens": 76_100,
        "torch": 51_300,
        "learn": 42_200,
        "parallel": 37_100,
        "audits": 32_700,
        "language": 30_900,
        "ledger": 29_200,
        "models": 24_800,
        "api": 22_500,
        "cli": 20_100,
        "common": 15_100,
        "top": 600,
    },
    "tests": {"sum": 574_700},
}


def test_no_package_grows():
    """What a feature adds, something else has to give up: see CONTRIBUTING.md."""
    sizes = {name: size for name, (size, _) in table(ROOT / "src" / "regard").items()}
    assert {name: size for name, size in sizes.items() if size > BUDGET["src/regard"].get(name, 0)} == {}
    assert sum(size for size, _ in table(ROOT / "tests").values()) <= BUDGET["tests"]["sum"]
