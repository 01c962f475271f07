"""What a plain install does: imports and calls that need more say which extra brings it, before they compute."""

import json
import subprocess
import sys

PROGRAM = """
import importlib, importlib.abc, importlib.util, json, pickle, sys
GONE = ("torch", "transformers", "tokenizers", "safetensors", "matplotlib", "starlette", "uvicorn", "watchfiles")
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
        "regard.torch", "regard.torch.layers", "regard.torch.positions", "regard.torch.observe", "regard.torch.hf",
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
print(json.dumps(result))
"""


def test_everything_that_needs_more_says_so():
    """Each is an ImportError for those who try, a Refused for all others, and names the extra."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    result = json.loads(done.stdout)

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
