"""What a plain install does: imports and calls that need more say which extra brings it, before they compute."""

import json

import pytest

from regard.common.optional import requires_extra
from tests.support.kernels import fresh

PROGRAM = """
import importlib, importlib.abc, importlib.util, json, pickle, sys
GONE = ("torch", "transformers", "tokenizers", "safetensors", "matplotlib", "starlette", "uvicorn")
class Missing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in GONE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in GONE else found(name, package)
sys.meta_path.insert(0, Missing())
import numpy as np
import regard as rg

q, k, v = np.random.default_rng(0).standard_normal((3, 2, 8, 8), dtype=np.float32)
run = rg.look(q, k=k, v=v, mask=rg.causal())
models = importlib.import_module("regard.models")
parallel = importlib.import_module("regard.parallel")
CASES = {
    **{f"import {name}": lambda name=name: importlib.import_module(name) for name in (
        "regard.torch", "regard.torch.layers", "regard.torch.positions", "regard.torch.hf",
        "regard.ledger")},
    **{f"regard.models.{name}": lambda name=name: getattr(models, name) for name in models.__all__},
    "heatmap": lambda: rg.heatmap(run),
    "look": lambda: rg.look("llama", "a text"),
    "audit": lambda: rg.audit("llama"),
    "cost": lambda: rg.cost("llama"),
    "HeadParallel": lambda: parallel.HeadParallel,
}
result = {}
for name, call in CASES.items():
    try:
        call()
        result[name] = None
    except Exception as error:
        again = pickle.loads(pickle.dumps(error))
        result[name] = [isinstance(error, ImportError), isinstance(error, rg.Refused), str(error), str(again)]
result["works"] = rg.attention(q, k, v).shape == q.shape and rg.audit(run).healthy and callable(parallel.attention)
from tests.support.command import regard
result["commands"] = [regard(*line.split("|")) for line in sys.argv[1:]]
print(json.dumps(result))
"""
NEEDS = {
    "look": ["look|Hello there.", "look|somewhere|Hello there.", "audit|somewhere", "audit"],
    "train": ["train|text.txt|--out|run", "generate|run|Hello"],
}


def test_everything_that_needs_more_says_so(tmp_path):
    """An ImportError for those who try, a Refused for all others, a sentence of a command: each names the extra."""
    (tmp_path / "text.txt").write_text("a text of some words " * 100)
    needs = [(extra, command) for extra, commands in NEEDS.items() for command in commands]
    result = json.loads(fresh(PROGRAM, *(command for _, command in needs), cwd=tmp_path))
    for (extra, command), (status, _, err) in zip(needs, result.pop("commands"), strict=True):
        assert status == 2 and f"regard[{extra}]" in err and "Traceback" not in err, (command, err)

    assert result.pop("works") is True
    works = {name for name, found in result.items() if found is None}
    assert works <= {"regard.models.Config"}, "a configuration is data"
    for name, found in result.items():
        if found is None:
            continue
        imported, refused, text, again = found
        assert imported and refused and text == again, (name, text)
        assert "pip install 'regard[" in text, (name, text)
    assert "regard[torch]" in result["import regard.torch"][2]
    assert "heatmap: matplotlib is not installed" in result["heatmap"][2]


# ---- packages that are missing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["timm", "numpy.nothing", None])
def test_other_missing_modules_stay_what_they_are(name):
    """A package that a user's model imports, or a part of an installed package."""
    with pytest.raises(ModuleNotFoundError), requires_extra("look", "look"):
        raise ModuleNotFoundError("No module", name=name)


def test_calls_while_another_thread_imports_torch():
    """Arrays need no torch: a module that is imported halfway is none yet."""
    script = """
        import threading, numpy as np, regard as rg
        q = np.ones((2, 8, 16), np.float32)
        begun = threading.Event()
        def load():
            begun.set()
            import torch
        importing = threading.Thread(target=load)
        importing.start()
        begun.wait()
        rounds = 0
        while importing.is_alive():
            rounds += 1
            for engine in ("jit", "reference"):
                rg.attention_with_lse(q, q, q, engine=engine)
            rg.attention_weights(q, q), rg.attention_stats(q, q, of=["entropy"]), rg.explain(q, q, q)
        import torch
        print(rounds > 0 and torch.equal(rg.attention(*[torch.from_numpy(q)] * 3), torch.ones(2, 8, 16)))
    """
    assert fresh(script) == "True"
