"""The structure of the source: imports only go down, no files import each other, files and folders stay small, and
what needs no compiler loads none.
"""

import pytest

from tests.project.measure import LAYERS, LAZY_CYCLE, cycles, measure, upward
from tests.support import import_graph
from tests.support.kernels import fresh


@pytest.fixture(scope="module")
def structure():
    """The structure, measured once."""
    return measure()


def test_the_plan_can_be_seen_at_once(structure):
    """Seventeen packages on ten layers."""
    assert structure.packages == {package for layer in LAYERS for package in layer}
    assert len(structure.packages) <= 17 and len(LAYERS) <= 10


def test_imports_go_down(structure):
    """A package imports lower layers only; imports inside functions count. A package without a layer is reported."""
    assert structure.upward == []


def test_no_files_import_each_other(structure):
    """But for Run.open and Run.save, which reach into the storage when they are called."""
    assert [cycle for cycle in structure.cycles if not {*cycle} <= LAZY_CYCLE] == []


def test_the_formatter_decides(structure):
    """`fmt: skip` stands beside true tables only."""
    assert structure.skips <= 60


def test_every_file_says_what_it_is():
    """The first line of a file with code is a sentence about it."""
    texts = {name: path.read_text() for name, path in import_graph.modules().items()}

    assert [name for name, text in texts.items() if text.strip() and not text.startswith('"""')] == []


def test_nothing_takes_many_positions():
    """Functions take at most six arguments by position, but where torch or typer say how they are called."""
    found = import_graph.long_signatures()

    # These have the arguments of others: of torch, of flash-attn, and of functions that transformers calls.
    files = (
        "regard.torch.layers.multi_head",
        "regard.torch.replaced_sdpa",
        "regard.parallel.head_parallel",
        "regard.ledger.stand_ins",
        "regard.compat.flash_attn",
    )
    others = tuple(f"{name}: " for name in files)
    assert [each for each in found if not each.startswith(others)] == []


def test_meta_a_bad_import_is_named(tmp_path):
    """The check can fail: imports inside functions, from nested folders, spelled in full, and new packages are seen."""
    package = tmp_path / "regard"
    for folder in ("lens", "audits", "cli", "attic"):
        (package / folder).mkdir(parents=True)
        (package / folder / "__init__.py").write_text("")
    (package / "lens" / "page.py").write_text("def f():\n    from ..audits import run\n    from .. import cli\n")
    (package / "audits" / "run.py").write_text("import regard.cli\nfrom ..lens import page\n")
    (package / "cli" / "look.py").write_text("from ..attic import box\n")

    assert sorted(upward(import_graph.modules(package))) == [
        "regard.audits.run imports regard.cli",
        "regard.cli.look imports regard.attic",
        "regard.lens.page imports regard.audits.run",
        "regard.lens.page imports regard.cli",
    ]


def test_meta_a_cycle_is_named():
    """The check can fail: files that import each other are found, however long the way around."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set(), "e": {"f"}, "f": {"e"}}

    assert cycles(graph) == [["a", "b", "c"], ["e", "f"]]


JUDGED = tuple(f"regard.engines.{name}" for name in ("jit", "gpu", "sdpa"))


def test_engines_do_not_import_the_law():
    """An engine that is tested against the law must not be made of it."""
    files = import_graph.modules()
    judged = [name for name in files if name.startswith(JUDGED)]
    found = {target.module for name in judged for target in import_graph.imports(name, files)}

    assert judged and [name for name in found if name.startswith("regard.engines.reference")] == []


# ---- what is loaded --------------------------------------------------------------------------------------------------

HEAVY = {"torch", "llvmlite", "transformers", "typer", "rich", "jax", "onnxruntime", "openvino", "playwright",
         "matplotlib", "safetensors", "starlette", "uvicorn"}  # fmt: skip

NEED_NUMPY_ONLY = """
import numpy as np
import regard as rg
assert not any(name.startswith("regard.parallel") for name in sys.modules)
repr(rg.causal() & rg.window(4)), repr(rg.alibi(8))
import regard.lens
import regard.parallel as rp
rp.explain(rp.place(999, ranks=3, mask=rg.causal()))
q = np.ones((3, 4), np.float32)
rg.attention(q, q, q, engine="reference")
"""


def loaded_by(statements: str) -> set[str]:
    """The heavy packages that are loaded in a fresh process after the statements."""
    report = f"import sys\n{statements}\nprint(*sorted({HEAVY!r} & sys.modules.keys()))"
    return set(fresh(report).split())


def test_what_needs_no_compiler_loads_numpy_only():
    """Expressions, recorded runs, placements and the law need none of the heavy packages."""
    assert loaded_by(NEED_NUMPY_ONLY) == set()


def test_meta_a_heavy_import_is_seen():
    """The check can fail: a process that loads llvmlite is told from one that does not."""
    assert loaded_by("import regard, llvmlite") == {"llvmlite"}
