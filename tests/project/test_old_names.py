"""Module paths, pickles and runs of version 0.1 (commit 415d022) still work; version_0_1/ was written by it."""

import importlib
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import regard as rg
from regard._old_names import MOVED, new_name

WRITTEN = Path(__file__).parent / "version_0_1"


@pytest.mark.parametrize("old", sorted(MOVED))
def test_every_old_path_leads_to_a_module(old):
    """Importing an old path gives the module of today, the same object, which still says its own name."""
    new = new_name(f"regard.{old}")
    if new.startswith(("regard.torch", "regard.models", "regard.bench")):
        pytest.importorskip("torch")
    found, today = importlib.import_module(f"regard.{old}"), importlib.import_module(new)

    assert found is today
    assert (found.__name__, found.__spec__.name) == (new, new)


def test_a_function_that_is_loaded_later_stays():
    """`regard.cost` was a module, and is a function that nothing has loaded yet."""
    code = "import sys, regard, regard.cost; print(sys.modules['regard.cost'].__name__, callable(regard.cost))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)

    assert done.stdout.split() == ["regard.engines.cost", "True"], done.stderr


def test_what_lies_below_a_moved_folder_is_found():
    """A folder in the table stands for every file in it, unless the file has a line of its own."""
    assert new_name("regard.jit.code.target") == "regard.engines.jit.code.target"
    assert new_name("regard.gpu.tiles") == "regard.engines.gpu.tile_softmax"
    assert new_name("regard.language.expr") is None
    with pytest.raises(ModuleNotFoundError, match="nowhere"):
        importlib.import_module("regard.jit.nowhere")


def test_functions_stay_when_a_module_of_their_name_is_imported():
    """`regard.attention` is the function, before and after somebody imports the old module of that name."""
    program = """
import regard as rg
import regard.lens
functions = rg.attention, rg.explain, rg.merge, rg.lens.heatmap
import regard.attention, regard.explain, regard.merge, regard.lens.heatmap
from regard.attention import attention
assert functions == (rg.attention, rg.explain, rg.merge, rg.lens.heatmap) and attention is functions[0]
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_pickles_of_version_0_1():
    """Expressions, a refusal and a cache that version 0.1 pickled are what they were."""
    held = pickle.loads((WRITTEN / "pickles.pickle").read_bytes())

    assert held["rules"]["mask"] is not None
    assert {name: repr(rule) for name, rule in held["rules"].items()} == held["texts"]
    assert held["rules"]["mask"] is rg.causal() & rg.window(4) | rg.documents(np.array([0, 0, 1, 1, 1, 2]))
    assert isinstance(held["refused"], rg.Refused) and held["refused"].reasons[0].fix
    np.testing.assert_allclose(held["cache"].attend(held["q"], mask=rg.causal()), held["out"], rtol=1e-5, atol=1e-6)


def test_a_refusal_of_version_0_1_prints_what_it_printed():
    """Everything but the label of the remedy, which was `to mend` and is `fix`; both names of the field give it."""
    held = pickle.loads((WRITTEN / "pickles.pickle").read_bytes())
    reason = held["refused"].reasons[0]

    words = held["words"].replace("\n  to mend   ", "\n  fix       ")

    assert str(held["refused"]) == words != held["words"]
    assert str(reason) in words and reason.mend == reason.fix


def test_a_run_of_version_0_1():
    """A run that version 0.1 saved opens, and its weights are the ones that it computed."""
    run = rg.Run.open(WRITTEN / "run")

    np.testing.assert_allclose(run.calls[0].weights(), np.load(WRITTEN / "weights.npy"), rtol=1e-5, atol=1e-7)


def test_public_classes_name_their_package():
    """Tracebacks and pickles name the package that people import from, not a file in it."""
    import regard.audits
    import regard.lens

    assert [rg.Refused.__module__, rg.KVCache.__module__, rg.Explanation.__module__] == ["regard"] * 3
    for package in (rg, regard.lens, regard.audits):
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, type):
                assert value.__module__ in ("regard", "regard.lens", "regard.audits"), name


def test_public_classes_of_torch_name_their_package():
    """The same of layers, positions, models and transformers."""
    pytest.importorskip("transformers")
    import regard.models
    import regard.torch.hf

    for package in (regard.torch.layers, regard.torch.positions, regard.torch.hf, regard.models):
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, type):
                assert value.__module__ == package.__name__, name
