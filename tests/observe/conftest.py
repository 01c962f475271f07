"""What the tests of this folder share: the same random numbers, and one thread of torch, so that times are of the work
and not of waiting for a core.
"""

import pytest
import torch


@pytest.fixture(autouse=True)
def quiet():
    torch.manual_seed(0)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
