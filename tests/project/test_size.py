"""The budget: tokens of code per package. A change may lower it, and raises it only with a reason beside the number."""

from tests import ROOT
from tests.project.size import table

BUDGET = {
    "src/regard": {
        "engines": 128_570,  # second derivatives, jit/products.py; masks that are tensors, gradients with rows first
        "conformance": 44_970,  # cases of several tiles; sessions end where a suite cannot begin
        # what_if, effects and patches (interventions/); contributions, circuits (residual/); image tokens on the
        # picture, what a causal model expected (recording/), steps of q and k measured over all pairs (embed.py)
        # codes keep three digits (codes.py), bars fit beside numbers (terminal.py), positions of an image or a sound
        "lens": 87_400,  # attention by hand in more forms; pictures, and the parts of LLaVA-NeXT (inputs.py)
        "torch": 41_020,  # hf/stored_cache.py (8 bits, pages), hf/continuous_batching.py (5.24 too), replaced_sdpa.py
        "compat": 8_190,  # the functions of flash-attn and xformers; its biases over keys with gaps and in pages
        "observe": 14_040,  # a softmax of exp and a sum; what changes calls, other threads; einsum
        "learn": 35_960,  # two mistakes at once (pairs.py), the place of an unknown one (repair.py, changes.py)
        "parallel": 31_840,  # as common: torch is not used until its import has ended
        "laws": 33_170,  # mistakes of kernels in blocks of keys; finding.py, which audits and conformance share
        "audits": 47_070,  # scales, rotations and orders of recorded weights, concatenated keys, masks nothing reads
        "language": 37_800,  # vectors (tree/vectors.py, spellings.py), selected keys, captured.py, plans of callables
        "ledger": 26_810,  # a cost with the inputs of the caller (inputs.py), positions of plain torch
        "models": 22_670,
        "api": 27_150,  # programs of JAX (jax_callback.py), second derivatives (derivative.py), ONNX (onnx.py)
        "cli": 18_830,  # look --effects --source, FOLDER IMAGE TEXT; audit, look and cost take FILE.py:CLASS
        "common": 14_880,  # modules not imported yet; what modules of transformers declare, of torch before
        "sandbox": 2_580,  # of conformance before
        "top": 610,
    },
    # vectors, selected keys, JAX, ONNX, derivatives, caches, interventions, the residual stream, each against what it
    # has to equal; a chapter and its checks; pictures of every view, image tokens, what a model expected; patches
    # against hooks; caches against the rounded ones; faults of kernels in blocks
    "tests": {"sum": 431_500},
}


def test_no_package_grows():
    """What a feature adds, something else has to give up: see CONTRIBUTING.md."""
    sizes = {name: size for name, (size, _) in table(ROOT / "src" / "regard").items()}
    assert {name: size for name, size in sizes.items() if size > BUDGET["src/regard"].get(name, 0)} == {}
    assert sum(size for size, _ in table(ROOT / "tests").values()) <= BUDGET["tests"]["sum"]
