"""Bytes that are sent: joined without a copy where they are consecutive parts of one array."""

import numpy as np
import pytest

from regard.parallel.exchange.transport import as_bytes, joined, parts_of


def test_parts_of_one_array_are_not_copied():
    """Also where some are empty."""
    parts = parts_of([0, 3, 0, 5, 0])
    for number, part in enumerate(parts):
        part[...] = number
    found = joined(parts)
    assert found.tolist() == [1, 1, 1, 3, 3, 3, 3, 3] and np.shares_memory(found, parts[1])


@pytest.mark.parametrize("dtype", [np.uint8, np.int64])
def test_other_arrays_are_joined(dtype):
    """Bytes of one array or several, whole or not consecutive, of any dtype."""
    numbers = np.arange(24).astype(dtype).reshape(2, 3, 4)
    for parts in (
        [numbers],
        [numbers[:1], numbers[1:]],
        [numbers[1:], numbers[:1]],
        [numbers[0], numbers[0, :0], numbers[1, 1:]],
        [numbers[:, 1]],
        [numbers[:0], numbers[:0]],
    ):
        found = joined([as_bytes(each) for each in parts])
        assert found.dtype == np.uint8 and found.tobytes() == b"".join(each.tobytes() for each in parts)
