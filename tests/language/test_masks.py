"""Every mask of the factories equals its definition, position by position."""

import functools

import numpy as np
import pytest

import regard as rg
from regard.language import masks
from regard.language.expr import key
from tests.support.engines import at_every_pair
from tests.support.lanes import by_name
from tests.support.refusals import refused_in

B, H, Q, K = 2, 3, 9, 9
b, h, q, k = np.ix_(*map(range, (B, H, Q, K)))
rng = np.random.default_rng(0)
IDS = np.array([[0, 0, 1, 1, 1, 5, 5, 2, 2], [3, 3, 3, 3, 0, 0, 0, 0, 0]])
PATTERN = rng.random((3, 3)) < 0.5
BY_HEAD = rng.random((H, 3, 3)) < 0.5
DENSE = rng.random((B, H, Q, K)) < 0.5

# Each row: the mask, and its definition over broadcast index arrays.
ROWS = {
    "everything": (rg.everything(), k >= 0),
    "causal": (rg.causal(), k <= q),
    "window 4": (rg.window(4), (k <= q) & (k > q - 4)),
    "window both ways": (rg.window(3, 2), (k >= q - 2) & (k <= q + 2)),
    "window to the right": (rg.window(None, 1), k <= q + 1),
    "window without limits": (rg.window(None, None), k >= 0),
    "prefix": (rg.prefix(4), (k <= q) | (k < 4)),
    "prefix per batch": (rg.prefix([2, 6]), (k <= q) | (k < np.array([2, 6])[b])),
    "documents by ids": (rg.documents(IDS[0]), IDS[0][q] == IDS[0][k]),
    "documents per batch": (rg.documents(IDS), IDS[b, q] == IDS[b, k]),
    "documents by lengths": (
        rg.documents(lengths=[2, 0, 3, 4]),
        np.digitize(q, [2, 5]) == np.digitize(k, [2, 5]),
    ),
    "lengths of keys": (rg.lengths(5), k < 5),
    "lengths of queries": (rg.lengths(queries=[3, 8]), q < np.array([3, 8])[b]),
    "lengths of both": (rg.lengths(4, [3, 8]), (k < 4) & (q < np.array([3, 8])[b])),
    "lengths of neither": (rg.lengths(), k >= 0),
    "padding of all": (rg.padding([0, 0, *[1] * 60]), k >= 2),
    "padding per batch": (rg.padding(np.arange(62) >= np.array([[2], [5]])), k >= np.array([2, 5])[b]),
    "padding on the right": (rg.padding(np.float32(np.arange(9) < np.array([[3], [9]]))), k < np.array([3, 9])[b]),
    "dilated": (rg.dilated(3), abs(q - k) % 3 == 0),
    "strided": (rg.strided(3), (k <= q) & ((q - k < 3) | ((q - k) % 3 == 0))),
    "global tokens, the first": (rg.global_tokens(2), (k < 2) | (q < 2)),
    "global tokens, listed": (rg.global_tokens([1, 5]), np.isin(k, [1, 5]) | np.isin(q, [1, 5])),
    "no global tokens": (rg.global_tokens([]), k < 0),
    "blocks": (rg.blocks(PATTERN, 3), PATTERN[q // 3, k // 3]),
    "blocks of two sizes": (rg.blocks(PATTERN, (5, 3)), PATTERN[q // 5, k // 3]),
    "blocks per head": (rg.blocks(BY_HEAD, 3), BY_HEAD[h, q // 3, k // 3]),
    "blocks, the last of which reaches on": (
        rg.blocks(PATTERN, 2),
        PATTERN[np.minimum(q // 2, 2), np.minimum(k // 2, 2)],
    ),
    "dense": (rg.dense(DENSE), DENSE),
    "dense, last rows": (rg.dense(DENSE[0, 0, :4]), DENSE[0, 0, np.clip(q - 5, 0, 3), k]),
    "dense, first rows": (rg.dense(DENSE[0, 0, :4], query_start=0), DENSE[0, 0, np.minimum(q, 3), k]),
    "dense, a start for each entry": (
        rg.dense(DENSE[0, 0, :4], query_start=[0, -2]),
        DENSE[0, 0, np.clip(q - np.array([0, -2])[b], 0, 3), k],
    ),
    "dense, one column": (rg.dense(DENSE[0, 0, :, :1], query_start=0), DENSE[0, 0, q, 0]),
    "composed": (
        ~rg.causal() & rg.window(None, 3) | rg.dilated(4),
        (k > q) & (k <= q + 3) | ((q - k) % 4 == 0),
    ),
}


value = functools.partial(at_every_pair, shape=(B, H, Q, K))


@by_name("mask, definition", ROWS)
def test_a_mask_equals_its_definition(mask, definition):
    """The expression's value is the brute-force matrix."""
    np.testing.assert_array_equal(value(mask), np.broadcast_to(definition, (B, H, Q, K)), strict=True)


def test_every_factory_is_tested():
    """A new factory of masks comes with a row above."""
    assert {*masks.__all__} <= {name.split()[0].strip(",") for name in ROWS} | {"global_tokens"}


@pytest.mark.parametrize("width", [1, 2, 5])
def test_windows_of_other_libraries(width):
    """How others count: Flash attention's (l, r) leaves the row out, transformers' sliding_window counts it."""
    flash_left = (q - k <= width) & (k - q <= 0)
    overlay = pytest.importorskip("transformers.masking_utils").sliding_window_overlay(width)

    assert (value(rg.window(width + 1)) == flash_left).all()
    assert (value(rg.window(width)) == overlay(0, 0, q, k) & (k <= q)).all()


def test_masks_keep_their_own_copy_of_descriptions():
    """Lists of ids, lengths and tokens are copied and frozen, so that plans made from them can be kept; a boolean array
    is read in place.
    """
    ids = IDS[0].copy()
    (table,) = rg.documents(ids).tables
    ids[:] = 0

    assert table.frozen and table.array.tolist() == IDS[0].tolist()
    assert [table.array for table in rg.dense(DENSE).tables] == [DENSE]


def test_numbers_and_arrays_in_every_spelling():
    """ids, lengths and arrays may be tensors; NumPy's integers and arrays without axes count like Python's; 0 is a
    length.
    """
    import torch

    four = np.int64(4)

    assert rg.documents(torch.from_numpy(IDS)) is rg.documents(IDS)
    assert rg.lengths(torch.tensor(5)) is rg.lengths(5) and rg.lengths(0) is (key < 0)
    assert rg.window(four, np.array(0)) is rg.window(4) and rg.global_tokens(four) is rg.global_tokens(4)
    assert rg.blocks(PATTERN, (4, four)) is rg.blocks(PATTERN, 4)


REFUSED = {
    "given     both ids and lengths": lambda: rg.documents([0, 1], lengths=[1, 1]),
    "documents: a length is negative": lambda: rg.documents(lengths=[3, -1]),
    "documents: not a list of integers": lambda: rg.documents([0.5, 1.0]),
    "integers with 1 or 2 axes": lambda: rg.documents(np.zeros((1, 2, 3), int)),
    "global_tokens: a position is negative": lambda: rg.global_tokens([-1]),
    "global_tokens: the number of tokens is negative": lambda: rg.global_tokens(-1),
    "positions below 2**31": lambda: rg.global_tokens([2**62]),
    "the number of tokens is not an integer": lambda: rg.global_tokens(True),
    "fewer than 2**31 positions": lambda: rg.documents(lengths=[10**11]),
    "documents: the array cannot be read": lambda: rg.documents([[0, 1], [0]]),
    "prefix: the number is negative": lambda: rg.prefix(-1),
    "keys: a number is negative": lambda: rg.lengths([3, -1]),
    "queries: the number is not an integer": lambda: rg.lengths(queries=2.5),
    "window: left is not an integer": lambda: rg.window(float("nan")),
    "window: right is negative": lambda: rg.window(4, -1),
    "blocks: the size is too small": lambda: rg.blocks(PATTERN, 0),
    "blocks: the size is not an integer": lambda: rg.blocks(PATTERN, "a"),
    "blocks: size must be an int or (queries, keys)": lambda: rg.blocks(PATTERN, (1, 2, 3)),
    "the mask of a masked array would be ignored": lambda: rg.dense(np.ma.masked_array(PATTERN, PATTERN)),
    "pattern: not an array of conditions": lambda: rg.blocks(np.ones((2, 2)), 4),
    "booleans with one to four axes": lambda: rg.dense(np.ones((1, 1, 1, 2, 2), bool)),
}


test_what_is_not_a_mask_is_refused = refused_in(REFUSED)
