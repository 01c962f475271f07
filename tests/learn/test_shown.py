"""Values as a check shows them."""

import itertools

import numpy as np
import pytest

from regard.learn.checking.cases import shown


@pytest.mark.parametrize("shape", [each for each in itertools.product((0, 1, 2), repeat=3) if 0 in each])
def test_an_empty_array_shows_its_shape(shape):
    """Brackets alone do not say which axis is empty."""
    assert shown(np.zeros(shape)) == f"an empty array of the shape {shape}"
    assert shown(np.zeros(0)) == "[]"
