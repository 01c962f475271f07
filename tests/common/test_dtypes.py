"""Dtypes: one table, which everything else reads, and each of its rows from end to end."""

import ast
import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import regard as rg
from regard.common.arrays import as_tensor, is_float, read_array
from regard.common.dtypes import FLOATS, LISTED, real_of, row_of, torch_dtypes, torch_real
from regard.engines.jit.code.emit import TABLE_TYPES
from regard.engines.jit.code.formats import NARROW, Format, stored
from regard.engines.jit.code.target import host
from tests.support.engines import normal
from tests.support.lanes import by_name
from tests.support.refusals import refusing

SOURCES = Path(rg.__file__).parent
rows = by_name("row", FLOATS)


# ---- one table -------------------------------------------------------------------------------------------------------

# What else names a 16-bit dtype, and why that is not a list of the dtypes of attention.
NAMES = {
    "common/dtypes.py": "the table",
    "engines/jit/code/formats.py": "the kernels of each format: how it is widened and rounded",
    "engines/peak.py": "the dot-product instruction is for bfloat16",
    "lens/recording/handwritten.py": "the names of torch's methods, half() and bfloat16() among them",
    "audits/run_checks/numbers.py": "a check of what float16 alone cannot hold",
    "audits/run_checks/outputs.py": "the coarsest dtype, for calls that do not say theirs",
    "audits/run_checks/sources.py": "numbers that half() and bfloat16() leave as they are were rounded before",
    "conformance/cases/calls.py": "sizes of real models are tried in float16 too, where it is declared",
    "ledger/cost.py": "examples in a message: models are counted in any floating-point dtype of torch",
    "ledger/machine.py": "peak rates of machines are by dtype, int8 among them",
    "models/training/loop.py": "autocast's precision is an option of training, not a dtype of attention",
    "audits/make_subject.py": "what a model can be audited in",
    "parallel/place.py": "what long sequences are usually computed in, if nothing is said",
    "cli/plan.py": "the same",
}
WORD = re.compile(r"\b(?:b?float16|BF16|F16)\b")


def named(text):
    """16-bit dtypes that code names, in strings and as attributes; doc strings, comments and the help of options may
    speak of them.
    """
    tree = ast.parse(text)
    spoken = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            spoken.add(node.value)
        elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "option":
            spoken |= set(ast.walk(node))
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in spoken:
            found |= set(WORD.findall(node.value))
        elif isinstance(node, ast.Attribute):
            found |= set(WORD.findall(node.attr)) | ({"half"} if ast.unparse(node) == "torch.half" else set())
    return found


def test_nothing_else_lists_the_dtypes():
    """A new dtype is a row and its kernels: no other file names the narrow ones without a reason."""
    texts = {path.relative_to(SOURCES).as_posix(): path.read_text() for path in SOURCES.rglob("*.py")}
    assert {name for name, text in texts.items() if re.search("16|half", text) and named(text)} == NAMES.keys()


# ---- what a row says -------------------------------------------------------------------------------------------------


@rows
def test_a_row_is_what_numpy_and_torch_say(row):
    """Sizes, rounding and names are those of NumPy's and torch's own dtypes."""
    import torch

    sums = FLOATS[row.sums]
    assert (row.numpy.name, row.numpy.itemsize * 8) == (row.name, row.bits)
    assert row.roundoff == float(ml_dtypes.finfo(row.numpy).eps) / 2 == torch.finfo(row.torch).eps / 2
    assert row_of(row.numpy) is row and row.torch in torch_dtypes()
    assert is_float(row.numpy) and sums.sums == row.sums and sums.bits >= row.bits
    assert (real_of(row.numpy), torch_real(row.torch)) == (sums.numpy, sums.torch)
    assert LISTED == "float32, float64, float16 or bfloat16"


def test_what_is_no_row():
    """Other byte orders, whole numbers, and floats that attention does not take."""
    strange = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("float8_e5m2", "float8_e4m3fn", "int4")}
    for dtype in (*map(np.dtype, (">f4", np.int16, np.longdouble, complex)), *strange.values()):
        assert row_of(dtype) is None
    assert is_float(np.dtype(">f4")) and is_float(np.dtype(np.longdouble))
    assert not any(map(is_float, strange.values()))


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_other_floats_are_refused(name):
    """As arrays, sinks and tables, in words; NumPy counts one of them among its own kinds."""
    q, wide = np.ones((2, 4), getattr(ml_dtypes, name)), np.ones((2, 4), np.float32)
    for call, words in (
        (lambda: rg.attention(q, q, q), "q has an unsupported dtype"),
        (lambda: rg.attention(wide, wide, wide, sinks=q[0, :1]), "sinks do not fit the heads"),
        (lambda: rg.table(q), "booleans, integers up to int64, or floats"),
    ):
        with refusing(words):
            call()


# ---- each row from end to end ----------------------------------------------------------------------------------------


@rows
def test_arrays_go_to_torch_and_back(row):
    """In place, whether NumPy has the dtype of its own or not."""
    import torch  # noqa: F401, half of this is torch

    array = np.arange(6).astype(row.numpy).reshape(2, 3)
    tensor = as_tensor(array)
    back = read_array(tensor, "test")
    assert tensor.dtype is row.torch and np.shares_memory(back, array)
    np.testing.assert_array_equal(back, array, strict=True)


@rows
def test_kernels_know_the_row(row):
    """What is stored, what it is computed with, and how it is converted."""
    form = Format(row.name, host())
    assert (form.itemsize, form.size) == (row.itemsize, FLOATS[row.sums].itemsize)
    assert form.wide == (row.name not in NARROW) and TABLE_TYPES[row.name] == stored(row.name)


@rows
@pytest.mark.parametrize("engine", ["jit", "reference"])
def test_every_call_takes_the_row(row, engine):
    """Attention with a table of the dtype, its gradients, and explain: right within the row's rounding."""
    wide = [normal(2, 4, 33, 16, seed=seed).astype(row.numpy).astype(np.float64) for seed in range(4)]
    narrow = [each.astype(row.numpy) for each in wide]
    bound = 32 * max(row.roundoff, FLOATS[row.sums].roundoff)
    read = rg.table(np.linspace(-1, 1, 33).astype(row.numpy))[rg.key]
    given = {"mask": rg.causal() & rg.window(20), "score": rg.score + read}

    def results(dout, *qkv, **more):
        return *rg.attention_with_lse(*qkv, **given, **more), *rg.attention_backward(dout, *qkv, **given, **more)[:3]

    dtypes = row.name, row.sums, *[row.name] * 3
    for mine, exact, dtype in zip(results(*narrow, engine=engine), results(*wide, engine="reference"), dtypes):
        assert mine.dtype == dtype
        assert np.abs(mine.astype(np.float64) - exact).max() <= bound * max(1, np.abs(exact).max())
    for name in (row.name, row.numpy, row.numpy.type, row.torch):
        assert rg.KVCache(4, 16, dtype=name).dtype == row.numpy
    found = rg.explain(*narrow[1:], **given, engine=engine)
    assert f", {row.name};" in str(found) and found.cost.written == narrow[0].nbytes
