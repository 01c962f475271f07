"""`import regard` is light: it needs NumPy and nothing else, until a call needs more."""

import subprocess
import sys

HEAVY = {"torch", "llvmlite", "transformers", "typer", "rich", "jax", "onnxruntime", "openvino", "playwright",
         "matplotlib", "safetensors", "starlette", "uvicorn"}  # fmt: skip


def loaded_by(statement: str) -> set[str]:
    """The heavy packages that are loaded in a fresh process after the statement."""
    report = f"import sys\n{statement}\nprint(*sorted({HEAVY!r} & sys.modules.keys()))"
    process = subprocess.run([sys.executable, "-c", report], capture_output=True, text=True, check=True)
    return set(process.stdout.split())


def test_importing_regard_loads_numpy_only():
    """A fresh `import regard` loads none of the heavy packages."""
    assert loaded_by("import regard") == set()


def test_the_lens_itself_loads_numpy_only():
    """Runs, calls and their weights are data: they need no engine."""
    assert loaded_by("import regard.lens") == set()


def test_placing_loads_numpy_only():
    """A sequence is placed on ranks without torch, and `import regard` does not load the package."""
    assert (
        loaded_by("import regard as rg, regard.parallel as rp; rp.explain(rp.place(999, ranks=3, mask=rg.causal()))")
        == set()
    )
    assert (
        loaded_by("import regard; assert not any(name.startswith('regard.parallel') for name in sys.modules)") == set()
    )


def test_building_expressions_loads_numpy_only():
    """Masks and scores, and their text, need no engine."""
    assert loaded_by("import regard as rg; repr(rg.causal() & rg.window(4)); repr(rg.alibi(8))") == set()


def test_the_reference_loads_numpy_only():
    """The law can be computed where no compiler is installed."""
    call = (
        "import numpy as np, regard as rg; q = np.ones((3, 4), np.float32); rg.attention(q, q, q, engine='reference')"
    )

    assert loaded_by(call) == set()


def test_meta_a_heavy_import_is_seen():
    """The check can fail: a process that loads llvmlite is told from one that does not."""
    assert loaded_by("import regard, llvmlite") == {"llvmlite"}
