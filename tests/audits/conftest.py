"""What the tests of audits share: arrays of one call, and tiny random models."""

import numpy as np
import pytest


@pytest.fixture(scope="module")
def models():
    """Tiny random models by name, made once, with inputs of 12 tokens."""
    import torch

    from regard.torch.hf.tiny_models import tiny_model

    made = {}

    def model(name):
        if name not in made:
            torch.manual_seed(0)
            made[name] = tiny_model(name)
        ids = torch.randint(3, 50, (1, 12), generator=torch.Generator().manual_seed(1))
        given = {"input_ids": ids}
        return made[name], given | ({"decoder_input_ids": ids.flip(1)} if name == "t5" else {})

    return model


@pytest.fixture
def arrays():
    """q (4, 24, 16), k and v (2, 24, 16)."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((4, 24, 16), np.float32), *rng.standard_normal((2, 2, 24, 16), np.float32)


@pytest.fixture(autouse=True)
def seeded():
    """The random numbers of torch are those of seed 0."""
    import torch

    torch.manual_seed(0)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Tiny models are slower on several threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
