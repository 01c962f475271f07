"""The budget: tokens of code per package. A change may lower it, and raises it only with a reason beside the number."""

from tests import ROOT
from tests.project.size import table

BUDGET = {
    "src/regard": {
        "engines": 128_420,  # second derivatives, jit/products.py; masks that are tensors in machine code (jit/direct)
        "conformance": 45_260,  # a session is closed where its suite cannot begin (pytest_plugin.py)
        # what_if, effects and patches (interventions/); contributions, circuits (residual/); image tokens on the
        # picture, what a causal model expected (recording/), steps of q and k measured over all pairs (embed.py)
        "lens": 86_914,
        "torch": 40_892,  # hf/stored_cache.py (8 bits, pages), hf/continuous_batching.py, replaced_sdpa.py
        "compat": 7_070,  # the functions of flash-attn and xformers, what their own suites use
        "observe": 14_090,  # of torch before; what changes calls, other threads; einsum with the values first
        "learn": 34_930,  # wrong answers as changes of the solution, checks in a file of their own (12,300 lines fewer)
        "parallel": 31_970,  # as common: torch is not used until its import has ended
        "laws": 32_850,  # of conformance before; the base of findings (finding.py), which audits and conformance share
        "audits": 39_957,  # where q, k, v come from (sources.py), rotations as measured, scripts (evidence.py)
        "language": 37_830,  # vectors (tree/vectors.py, spellings.py), selected keys, captured.py, more of torch
        "ledger": 26_730,  # a cost with the inputs of the caller (inputs.py)
        "models": 22_790,
        "api": 27_100,  # programs of JAX (jax_callback.py), second derivatives (derivative.py), ONNX (onnx.py)
        "cli": 19_110,  # look --effects --source, FOLDER IMAGE TEXT; audit, look and cost take FILE.py:CLASS
        "common": 15_040,  # what modules of transformers declare, of torch before; the default model is read once
        "sandbox": 2_580,  # of conformance before
        "top": 610,
    },
    # vectors, selected keys, JAX, ONNX, derivatives, caches, interventions, the residual stream, each against what it
    # has to equal; a chapter and its checks; pictures of every view, image tokens, what a model expected; patches
    # against hooks; caches against the rounded ones
    "tests": {"sum": 432_490},
}


def test_no_package_grows():
    """What a feature adds, something else has to give up: see CONTRIBUTING.md."""
    sizes = {name: size for name, (size, _) in table(ROOT / "src" / "regard").items()}
    assert {name: size for name, size in sizes.items() if size > BUDGET["src/regard"].get(name, 0)} == {}
    assert sum(size for size, _ in table(ROOT / "tests").values()) <= BUDGET["tests"]["sum"]
