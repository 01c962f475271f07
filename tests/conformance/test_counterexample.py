"""Counterexamples say nothing where the function is right: their expected numbers have its conventions."""

import math

import numpy as np
import pytest

import regard.conformance as rc
from regard.conformance.conventions.roles import completed
from regard.conformance.conventions.translate import Absent
from regard.conformance.conventions.validation import parameters_of
from regard.conformance.counterexample import script
from regard.laws.call import Call
from regard.laws.probes import probes

from .implementations import right


@pytest.mark.parametrize("seed", range(16))
def test_right_functions_pass(seed):
    """In random conventions, each result that they return; but for NaN in hidden values, which most do not keep out."""
    function, adapter = right(np.random.default_rng(seed))
    results = {adapter.returns} if isinstance(adapter.returns, str) else {*adapter.returns} - {None}
    ran = 0
    for probe in probes(np.float64):
        for what in results if probe.call.dout is None and probe.id != "nan-values" else ():
            try:
                text = script(probe.call, adapter, parameters_of(function), "function", what, [])
            except Absent:
                continue
            exec(text, {"function": function})
            ran += 1
    assert ran


@pytest.mark.parametrize(
    ("layout", "axes", "products", "sums"),
    [
        ("BSHD", "BQH1", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd"),
        ("HSD", "BQH", "hqd,hkd->hqk", "hqk,hkd->hqd"),
        ("THD", "HT", "qhd,khd->hqk", "hqk,khd->qhd"),
    ],
)
def test_gradients_of_right_functions_pass(layout, axes, products, sums):
    """Of every input, from those of the output and of lse in base 2; a packed layout has no keys beyond the lengths."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    names = ("cu_seqlens_q", "cu_seqlens_k") if layout == "THD" else ("bias",)
    adapter = rc.Adapter(
        arrays="torch",
        layout=layout,
        lse="base-2",
        lse_layout=axes,
        returns=("out", "lse"),
        gradients="torch",
        parameters={name: name for name in names},
    )

    def function(q, k, v, bias=None, cu_seqlens_q=None, cu_seqlens_k=None):
        added = 0 if bias is None else bias.reshape(-1, *bias.shape[-2:])
        scores = torch.einsum(products, q, k) / math.sqrt(q.shape[-1]) + added
        lse = scores.logsumexp(-1) / math.log(2)
        turned = lse.transpose(-1, -2) if axes.startswith("BQH") else lse
        return torch.einsum(sums, scores.softmax(-1), v), turned[..., None] if axes.endswith("1") else turned

    def normal(*shape):
        return np.random.default_rng(sum(shape)).standard_normal(shape)

    keys = [3] if layout == "THD" else None
    call = Call(
        q=normal(1, 2, 4, 3),
        k=normal(1, 2, 5, 3),
        v=normal(1, 2, 5, 3),
        bias=None if layout == "THD" else normal(1, 1, 4, 5),
        lengths=keys and np.array(keys),
        dout=normal(1, 2, 4, 3),
        dlse=normal(1, 2, 4),
    )
    for role in "q", "k", "v", *(["bias"] if call.bias is not None else []):
        named = completed(adapter, parameters_of(function))
        exec(
            script(call, named, parameters_of(function), "function", f"gradient of {role}", []),
            {"function": function},
        )
