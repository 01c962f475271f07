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
from regard.common.files.tensors import dtype_name, mapped, write
from regard.engines.jit.code.emit import TABLE_TYPES
from regard.engines.jit.code.formats import NARROW, Format, stored
from regard.engines.jit.code.target import host

SOURCES = Path(rg.__file__).parent
rows = pytest.mark.parametrize("row", FLOATS.values(), ids=FLOATS)


# ---- one table -------------------------------------------------------------------------------------------------------

# What else names a 16-bit dtype, and why that is not a list of the dtypes of attention.
NAMES = {
    "common/dtypes.py": "the table",
    "engines/jit/code/formats.py": "the kernels of each format: how it is widened and rounded",
    "engines/peak.py": "the dot-product instruction is for bfloat16",
    "lens/viewer/embed.py": "the page reads its heat maps as float16, whatever the model computed with",
    "lens/recording/tensor_layout.py": "torch dtypes that NumPy has, integers among them",
    "lens/recording/rules/handwritten.py": "the names of torch's methods, half() and bfloat16() among them",
    "audits/run_checks/numbers.py": "a check of what float16 alone cannot hold",
    "conformance/cases/edges.py": "sizes of real models are tried in float16 too, where it is declared",
    "ledger/cost.py": "examples in a message: models are counted in any floating-point dtype of torch",
    "ledger/machine.py": "peak rates of machines are by dtype, int8 among them",
    "models/training/loop.py": "autocast's precision is an option of training, not a dtype of attention",
    "audits/auditable.py": "what a model can be audited in",
    "parallel/place.py": "what long sequences are usually computed in, if nothing is said",
    "cli/plan.py": "the same",
}
WORD = re.compile(r"\b(?:b?float16|BF16|F16)\b")


def named(text: str) -> set[str]:
    """16-bit dtypes that code names, in strings and as attributes; doc strings, comments and the help of options may
    speak of them.
    """
    tree = ast.parse(text)
    spoken = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    spoken |= {
        id(word)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "option"
        for word in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in spoken:
            found |= set(WORD.findall(node.value))
        elif isinstance(node, ast.Attribute):
            found |= set(WORD.findall(node.attr))
            found |= {"half"} if ast.unparse(node) == "torch.half" else set()
    return found


def test_nothing_else_lists_the_dtypes():
    """A new dtype is a row and its kernels: no other file names the narrow ones without a reason."""
    naming = {
        path.relative_to(SOURCES).as_posix(): found
        for path in SOURCES.rglob("*.py")
        if re.search("16|half", text := path.read_text()) and (found := named(text))
    }
    assert naming.keys() == NAMES.keys(), {name: naming.get(name) for name in naming.keys() ^ NAMES.keys()}


def test_meta_a_list_is_seen():
    """Whether written as strings or as attributes; a doc string is none."""
    assert named('DTYPES = ("float32", "bfloat16")') == {"bfloat16"}
    assert named("DTYPES = (torch.float32, torch.half)") == {"half"}
    assert named('expected = f"float32, {x} or float16"') == {"float16"}
    assert not named('"""Takes float16."""\nx = float32  # bfloat16')


# ---- what a row says -------------------------------------------------------------------------------------------------


def test_the_list_in_words():
    """As refusals have said it all along."""
    assert LISTED == "float32, float64, float16 or bfloat16"


@rows
def test_a_row_is_what_numpy_and_torch_say(row):
    """Sizes, rounding and names are those of NumPy's and torch's own dtypes."""
    torch = pytest.importorskip("torch", reason="half of the table is about torch")
    assert (row.numpy.name, row.numpy.itemsize * 8) == (row.name, row.bits)
    assert row.roundoff == float(ml_dtypes.finfo(row.numpy).eps) / 2 == torch.finfo(row.torch).eps / 2
    assert row_of(row.numpy) is row and row.torch in torch_dtypes()
    assert is_float(row.numpy) and FLOATS[row.sums].sums == row.sums and FLOATS[row.sums].bits >= row.bits
    assert real_of(row.numpy) == FLOATS[row.sums].numpy and torch_real(row.torch) is FLOATS[row.sums].torch


def test_what_is_no_row():
    """Other byte orders, whole numbers, and floats that attention does not take."""
    strange = [np.dtype(ml_dtypes.float8_e5m2), np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.int4)]
    for dtype in [np.dtype(">f4"), np.dtype(np.int16), np.dtype(np.longdouble), np.dtype(complex), *strange]:
        assert row_of(dtype) is None
    assert is_float(np.dtype(">f4")) and is_float(np.dtype(np.longdouble))
    assert not any(map(is_float, strange))


@pytest.mark.parametrize("name", ["float8_e5m2", "float8_e4m3fn"])
def test_other_floats_are_refused(name):
    """As arrays, sinks and tables, in words; NumPy counts one of them among its own kinds."""
    q, wide = np.ones((2, 4), getattr(ml_dtypes, name)), np.ones((2, 4), np.float32)
    with pytest.raises(rg.Refused, match="q has an unsupported dtype"):
        rg.attention(q, q, q)
    with pytest.raises(rg.Refused, match="sinks do not fit the heads"):
        rg.attention(wide, wide, wide, sinks=np.ones(1, q.dtype))
    with pytest.raises(rg.Refused, match="booleans, integers up to int64, or floats"):
        rg.table(q)


# ---- each row from end to end ----------------------------------------------------------------------------------------


@rows
def test_arrays_go_to_torch_and_back(row):
    """In place, whether NumPy has the dtype of its own or not."""
    pytest.importorskip("torch", reason="half of this is torch")
    array = np.arange(6).astype(row.numpy).reshape(2, 3)
    tensor = as_tensor(array)
    assert tensor.dtype is row.torch and tensor.data_ptr() == array.ctypes.data
    back = read_array(tensor, "test")
    assert back.dtype == row.numpy and np.shares_memory(back, array)
    np.testing.assert_array_equal(back, array)


@rows
def test_kernels_know_the_row(row):
    """What is stored, what it is computed with, and how it is converted."""
    form = Format(row.name, host())
    assert (form.itemsize, form.size) == (row.itemsize, FLOATS[row.sums].itemsize)
    assert form.wide == (row.name not in NARROW) and TABLE_TYPES[row.name] == stored(row.name)


@rows
def test_files_hold_the_row(row, tmp_path):
    """Under its own name, and the numbers come back."""
    array = np.arange(6).astype(row.numpy).reshape(2, 3)
    assert dtype_name(row.numpy) == row.stored
    write(tmp_path / "x.safetensors", {"x": array})
    found = mapped(tmp_path / "x.safetensors", "test")["x"]
    assert found.dtype == row.numpy
    np.testing.assert_array_equal(found, array)


@rows
@pytest.mark.parametrize("engine", ["jit", "reference"])
def test_every_call_takes_the_row(row, engine):
    """Attention, its gradients, its statistics, a cache and explain: right within the row's rounding."""
    rng = np.random.default_rng(0)
    wide = [rng.standard_normal((2, 4, 33, 16)).astype(row.numpy).astype(np.float64) for _ in range(4)]
    q, k, v, dout = (array.astype(row.numpy) for array in wide)
    bound = 32 * max(row.roundoff, FLOATS[row.sums].roundoff)
    mask = rg.causal() & rg.window(20)

    def near(found, exact):
        exact = np.asarray(exact, np.float64)
        assert np.abs(np.asarray(found, np.float64) - exact).max() <= bound * max(1, np.abs(exact).max())

    out, lse = rg.attention_with_lse(q, k, v, mask=mask, engine=engine)
    exact, exact_lse = rg.attention_with_lse(*wide[:3], mask=mask, engine="reference")
    assert out.dtype == row.numpy and lse.dtype == FLOATS[row.sums].numpy
    near(out, exact)
    near(lse, exact_lse)
    back = rg.attention_backward(dout, q, k, v, mask=mask, engine=engine)
    law = rg.attention_backward(wide[3], *wide[:3], mask=mask, engine="reference")
    for name in ("q", "k", "v"):
        assert getattr(back, name).dtype == row.numpy
        near(getattr(back, name), getattr(law, name))
    entropy = rg.attention_stats(q, k, mask=mask, of=["entropy"], engine=engine).entropy
    assert entropy.dtype == FLOATS[row.sums].numpy
    near(entropy, rg.attention_stats(*wide[:2], mask=mask, of=["entropy"], engine="reference").entropy)
    table = rg.table(np.linspace(-1, 1, 33).astype(row.numpy))
    near(
        rg.attention(q, k, v, score=rg.score + table[rg.key], engine=engine),
        rg.attention(*wide[:3], score=rg.score + table[rg.key], engine="reference"),
    )
    for given in (row.name, row.numpy, row.numpy.type):
        cache = rg.KVCache(4, 16, batch=2, dtype=given)
        assert cache.dtype == row.numpy
    cache.append(k, v)
    near(cache.attend(q, mask=mask, engine=engine), exact)
    found = rg.explain(q, k, v, mask=mask, engine=engine)
    assert f", {row.name};" in str(found) and found.cost.written == out.nbytes


@rows
def test_tensors_of_the_row(row):
    """The operator of torch, forward and backward, and a cache by torch's name."""
    torch = pytest.importorskip("torch", reason="this is about tensors")
    q, k, v = (torch.randn(2, 17, 8).to(row.torch).requires_grad_() for _ in range(3))
    out = rg.attention(q, k, v, mask=rg.causal())
    out.sum().backward()
    assert out.dtype is q.grad.dtype is k.grad.dtype is row.torch and torch.isfinite(q.grad).all()
    plain = rg.attention(*(read_array(x, "x").astype(np.float64) for x in (q, k, v)), mask=rg.causal())
    np.testing.assert_allclose(out.detach().double().numpy(), plain, atol=32 * max(row.roundoff, 2.0**-24))
    assert rg.KVCache(2, 8, dtype=row.torch).dtype == row.numpy
