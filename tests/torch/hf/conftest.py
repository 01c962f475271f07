"""What the tests of this folder share: regard is registered with transformers, which only reports errors."""

import pytest
import transformers

from regard.torch.hf import register

transformers.logging.set_verbosity_error()


@pytest.fixture(autouse=True)
def registered():
    register()
