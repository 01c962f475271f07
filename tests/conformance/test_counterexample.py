"""Counterexamples say nothing where the function is right: their expected numbers have its conventions."""

import numpy as np
import pytest

import regard.conformance as rc
from regard.conformance.conventions.parameters import completed, parameters_of
from regard.conformance.conventions.translate import Absent
from regard.conformance.counterexample import script
from regard.laws.call import Call
from regard.laws.probes import probes
from tests.support.engines import normal

from .implementations import right
from .test_translate import differentiable


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


@pytest.mark.parametrize(("layout", "axes"), [("BSHD", "BQH1"), ("HSD", "BHQ"), ("THD", "HT")])
def test_gradients_of_right_functions_pass(layout, axes):
    """Of every input, from those of the output and of lse in base 2; a packed layout has no keys beyond the lengths."""
    pytest.importorskip("torch", reason="torch is not installed")
    packed = layout == "THD"
    names = {name: name for name in ("cu_seqlens_q", "cu_seqlens_k")} if packed else {"bias": "mask"}
    adapter = rc.Adapter(
        arrays="torch",
        layout=layout,
        lse="base-2",
        lse_layout=axes,
        returns=("out", "lse"),
        gradients="torch",
        parameters=names | {"sinks": "sinks"},
    )
    function = differentiable(adapter)
    q, k, v, dout = (normal(1, 2, rows, 3, seed=seed, dtype=float) for seed, rows in enumerate((4, 5, 5, 4)))
    more = {"lengths": np.array([3])} if packed else {"bias": normal(1, 1, 4, 5, dtype=float)}
    call = Call(q=q, k=k, v=v, sinks=normal(2, dtype=float), dout=dout, dlse=dout[..., 0], **more)
    named = completed(adapter, parameters_of(function))
    for role in ("q", "k", "v", "sinks", *(() if packed else ("bias",))):
        text = script(call, named, parameters_of(function), "function", f"gradient of {role}", [])
        exec(text, {"function": function})
