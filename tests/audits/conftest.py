"""What the tests of audits share: arrays of one call, random numbers, and one thread."""

import pytest

from tests.support.engines import normal


@pytest.fixture
def arrays():
    """q (4, 24, 16), k and v (2, 24, 16)."""
    return normal(4, 24, 16), *normal(2, 2, 24, 16, seed=1)


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
