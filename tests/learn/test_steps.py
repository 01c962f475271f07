"""Steps of attention with a known mistake: each mistake applies to any shape, or does not, but raises no error."""

import numpy as np
import pytest

from regard.laws.mistakes import CATALOG
from regard.learn.checking.grading import shown
from regard.learn.checking.naming import computed


@pytest.mark.parametrize("step", ["scores", "weights", "out"])
def test_every_mistake_gives_an_array_or_none(step):
    """Also mistakes that change the number of rows or keys, and 1/√keys without keys, or a maximum of nothing."""
    rng = np.random.default_rng(0)
    applied = 0
    for shape in [(0, 0), (2, 0), (0, 2), (1, 1), (1, 2), (2, 2), (3, 2), (2, 3, 4)]:
        scores = rng.standard_normal(shape)
        rows, keys = shape[-2:]
        pair = {"q": rng.standard_normal((rows, 3)), "k": rng.standard_normal((keys, 3)), "v": np.ones((keys, 2))}
        case = {"scores": scores} if step == "weights" else pair
        for mistake in CATALOG:
            found = computed(step, case, (mistake,), np.zeros((rows, 2)) if step == "out" else scores)
            applied += found is not None
            assert found is None or found.dtype.kind in "fb", mistake.name
    assert applied > 100


def test_an_empty_array_shows_its_shape():
    """Brackets alone do not say which axis is empty."""
    assert shown(np.zeros((2, 0, 1))) == "an empty array of the shape (2, 0, 1)"
    assert shown(np.zeros(0)) == "[]"
