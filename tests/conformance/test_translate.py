"""Canonical calls in the conventions of a function, and results read back."""

import numpy as np
import pytest

from regard.conformance.conventions.fields import CHOICES
from regard.conformance.law.expected import expected
from tests.conformance.calls import random_call
from tests.conformance.implementations import right
from tests.conformance.sessions import Here


@pytest.mark.parametrize("layout", CHOICES["layout"])
def test_right_functions_in_any_convention_agree_with_the_law(layout):
    """Calls, masks, windows, heads, lse and empty rows mean the same in every convention."""
    for seed in range(10):
        assert_agrees(np.random.default_rng([seed, CHOICES["layout"].index(layout)]), layout)


@pytest.mark.sweep
def test_five_hundred_right_functions_agree_with_the_law():
    """The same, over more of them."""
    for seed in range(500):
        assert_agrees(np.random.default_rng([seed, 99]), None)


def assert_agrees(rng, layout):
    """One function, in a few calls."""
    function, adapter = right(rng, layout)
    for _ in range(5):
        call = random_call(rng, adapter)
        answer = Here(function).call(call, adapter)
        assert answer.status == "ok", (answer.words, adapter, call.uses(), call.dims)
        verdict = expected(call, adapter).judge(answer)
        assert verdict.right, (str(verdict), adapter, call.uses(), call.dims)
