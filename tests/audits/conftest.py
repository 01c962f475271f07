"""What the tests of audits share: arrays of one call, random numbers, and one thread."""

import pytest

from tests.support.engines import normal
from tests.support.machine import one_thread, seeded  # noqa: F401, fixtures


@pytest.fixture
def arrays():
    """q (4, 24, 16), k and v (2, 24, 16)."""
    return normal(4, 24, 16), *normal(2, 2, 24, 16, seed=1)
