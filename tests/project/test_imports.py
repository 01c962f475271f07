"""`import regard` is light: it needs NumPy and nothing else, until a call needs more."""

from tests.support.kernels import fresh

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
