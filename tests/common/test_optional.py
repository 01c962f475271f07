"""A missing optional package: the error says which extra brings it; other missing packages are the user's own.
A package that another thread is importing is not there yet.
"""

import pytest

from regard.common.optional import requires_extra
from tests.support.kernels import fresh


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
