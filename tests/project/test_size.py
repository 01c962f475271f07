"""The budget: tokens of code per package. A change may lower it, and raises it only with a reason beside the number."""

from tests import ROOT
from tests.project.size import table

BUDGET = {
    "src/regard": {
        "engines": 127_880,  # selected keys, second derivatives (reference/second.py), jit/products.py
        "conformance": 46_740,  # a session is closed where its suite cannot begin (pytest_plugin.py)
        "lens": 83_840,  # what_if and effects (interventions/), which runs keep; contributions … (residual/)
        "torch": 39_220,  # hf/cache.py, hf/continuous_batching.py, replaced_sdpa.py, invariance.py
        "compat": 6_600,  # the functions of flash-attn and xformers
        "observe": 14_095,  # of torch before; what changes calls, and observers inside observers
        "learn": 34_040,
        "parallel": 32_530,  # as common: torch is not used until its import has ended
        "laws": 32_960,  # of conformance before; the base of findings (finding.py), which audits and conformance share
        "audits": 33_220,  # caches of any module, and what is wrong with them (cache_causes.py)
        "language": 37_950,  # vectors (tree/vectors.py, reductions.py), selected keys, captured.py, more of torch
        "ledger": 27_110,  # a cost with the inputs of the caller (model/inputs.py)
        "models": 22_870,
        "api": 27_130,  # programs of JAX (jax_callback.py), second derivatives (derivative.py), ONNX (onnx.py)
        "cli": 18_990,  # look --effects; audit, look and cost take FILE.py:CLASS (arguments.py)
        "common": 15_040,  # what modules of transformers declare, of torch before; the default model is read once
        "sandbox": 2_870,  # of conformance before
        "top": 620,
    },
    # vectors, selected keys, JAX, ONNX, derivatives, caches, interventions, the residual stream, each against what it
    # has to equal
    "tests": {"sum": 429_040},
}


def test_no_package_grows():
    """What a feature adds, something else has to give up: see CONTRIBUTING.md."""
    sizes = {name: size for name, (size, _) in table(ROOT / "src" / "regard").items()}
    assert {name: size for name, size in sizes.items() if size > BUDGET["src/regard"].get(name, 0)} == {}
    assert sum(size for size, _ in table(ROOT / "tests").values()) <= BUDGET["tests"]["sum"]
