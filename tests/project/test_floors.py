"""The house: imports only go down, no files import each other, and every room can be read in one sitting."""

import pytest

from tests.project.measure import FLOORS, LAZY_CIRCLE, TO_COME, circles, measure, upward
from tests.support import import_graph


@pytest.fixture(scope="module")
def house():
    """The house, measured once."""
    return measure()


def test_the_plan_can_be_seen_at_once(house):
    """Ten rooms on nine floors; with those that are to come there will be no more than fourteen on eleven."""
    rooms = [room for floor in FLOORS for room in floor]

    assert house.rooms == len(set(rooms) - TO_COME) <= 10 and house.floors <= 9
    assert len(rooms) <= 14 and len(FLOORS) <= 11


def test_imports_go_down(house):
    """A room knows only what lies below it; imports inside functions count, and a room without a floor is named."""
    assert house.upward == []


def test_no_files_import_each_other(house):
    """But for Run.open and Run.save, which reach into the storage when they are called."""
    assert [each for each in house.circles if "regard.lens.runs.run" not in each] == []
    for circle in house.circles:
        assert set(circle) <= LAZY_CIRCLE


def test_no_room_is_too_large(house):
    """No source file exceeds 400 lines, and no folder has more than 16 Python files."""
    assert {name: lines for name, lines in house.lines.items() if lines > 400} == {}
    assert {name: count for name, count in house.folders.items() if count > 16} == {}


def test_the_formatter_decides(house):
    """`fmt: skip` stands beside true tables only."""
    assert house.skips <= 60


def test_every_file_says_what_it_is():
    """The first line of a file with code is a sentence about it."""
    texts = {name: path.read_text() for name, path in import_graph.modules().items()}

    assert [name for name, text in texts.items() if text.strip() and not text.startswith('"""')] == []


def test_nothing_takes_many_positions():
    """Functions take at most six arguments by position, but where torch or typer say how they are called."""
    found = import_graph.long_signatures()

    # It stands in for torch.nn.MultiheadAttention, argument by argument.
    assert [each for each in found if not each.startswith("regard.torch.layers.multi_head: ")] == []


def test_meta_a_bad_import_is_named(tmp_path):
    """The check can fail: it sees imports inside functions, from nested folders, those spelled in full, new rooms."""
    package = tmp_path / "regard"
    for folder in ("lens", "bench", "cli", "attic"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text("")
    (package / "lens" / "page.py").write_text("def f():\n    from ..bench import run\n    from .. import cli\n")
    (package / "bench" / "run.py").write_text("import regard.cli\nfrom ..lens import page\n")
    (package / "cli" / "look.py").write_text("from ..attic import box\n")

    assert sorted(upward(import_graph.modules(package))) == [
        "regard.bench.run imports regard.cli",
        "regard.cli.look imports regard.attic",
        "regard.lens.page imports regard.bench.run",
        "regard.lens.page imports regard.cli",
    ]


def test_meta_a_circle_is_named():
    """The check can fail: files that import each other are found, however long the way around."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}

    assert circles(graph) == [["a", "b", "c"], ["e", "f"]]


def test_engines_do_not_import_the_law():
    """An engine that is tested against the law must not be made of it."""
    files = import_graph.modules()
    judged = [
        name for name in files if name.startswith(("regard.engines.jit", "regard.engines.gpu", "regard.engines.sdpa"))
    ]
    law = "regard.engines.reference"

    assert [
        name for name in judged for found in import_graph.imports(name, files) if found.module.startswith(law)
    ] == []
