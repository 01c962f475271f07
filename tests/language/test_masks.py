"""Every mask of the factories equals its definition, position by position."""

import numpy as np
import pytest

import regard as rg
from regard.language.analysis import evaluate
from regard.language.expr import key

B, H, Q, K = 2, 3, 9, 9
b, h, q, k = np.ix_(range(B), range(H), range(Q), range(K))
rng = np.random.default_rng(0)
IDS = np.array([[0, 0, 1, 1, 1, 5, 5, 2, 2], [3, 3, 3, 3, 0, 0, 0, 0, 0]])
PATTERN = rng.random((3, 3)) < 0.5
BY_HEAD = rng.random((H, 3, 3)) < 0.5
DENSE = rng.random((B, H, Q, K)) < 0.5

# Each row: the mask, and its definition over broadcast index arrays.
ROWS = {
    "everything": (rg.everything(), lambda: k >= 0),
    "causal": (rg.causal(), lambda: k <= q),
    "window 1": (rg.window(1), lambda: k == q),
    "window 4": (rg.window(4), lambda: (k <= q) & (k > q - 4)),
    "window both ways": (rg.window(3, 2), lambda: (k >= q - 2) & (k <= q + 2)),
    "window to the right": (rg.window(None, 1), lambda: k <= q + 1),
    "window without limits": (rg.window(None, None), lambda: k >= 0),
    "prefix": (rg.prefix(4), lambda: (k <= q) | (k < 4)),
    "prefix per batch": (rg.prefix([2, 6]), lambda: (k <= q) | (k < np.array([2, 6])[b])),
    "documents by ids": (rg.documents(IDS[0]), lambda: IDS[0][q] == IDS[0][k]),
    "documents per batch": (rg.documents(IDS), lambda: IDS[b, q] == IDS[b, k]),
    "documents by lengths": (
        rg.documents(lengths=[2, 0, 3, 4]),
        lambda: np.digitize(q, [2, 5]) == np.digitize(k, [2, 5]),
    ),
    "lengths of keys": (rg.lengths(5), lambda: k < 5),
    "lengths per batch": (rg.lengths([3, 8]), lambda: k < np.array([3, 8])[b]),
    "lengths of queries": (rg.lengths(queries=[3, 8]), lambda: q < np.array([3, 8])[b]),
    "lengths of both": (rg.lengths(4, [3, 8]), lambda: (k < 4) & (q < np.array([3, 8])[b])),
    "lengths of neither": (rg.lengths(), lambda: k >= 0),
    "padding of all": (rg.padding([0, 0, *[1] * 60]), lambda: k >= 2),
    "padding per batch": (
        rg.padding(np.arange(62) >= np.array([[2], [5]])),
        lambda: k >= np.array([2, 5])[b],
    ),
    "dilated": (rg.dilated(3), lambda: abs(q - k) % 3 == 0),
    "strided": (rg.strided(3), lambda: (k <= q) & ((q - k < 3) | ((q - k) % 3 == 0))),
    "global tokens, the first": (rg.global_tokens(2), lambda: (k < 2) | (q < 2)),
    "global tokens, listed": (rg.global_tokens([1, 5]), lambda: np.isin(k, [1, 5]) | np.isin(q, [1, 5])),
    "no global tokens": (rg.global_tokens([]), lambda: k < 0),
    "blocks": (rg.blocks(PATTERN, 3), lambda: PATTERN[q // 3, k // 3]),
    "blocks of two sizes": (rg.blocks(PATTERN, (5, 3)), lambda: PATTERN[q // 5, k // 3]),
    "blocks per head": (rg.blocks(BY_HEAD, 3), lambda: BY_HEAD[h, q // 3, k // 3]),
    "blocks, the last of which reaches on": (
        rg.blocks(PATTERN, 2),
        lambda: PATTERN[np.minimum(q // 2, 2), np.minimum(k // 2, 2)],
    ),
    "dense": (rg.dense(DENSE), lambda: DENSE),
    "dense per head": (rg.dense(DENSE[0]), lambda: DENSE[0]),
    "dense for all": (rg.dense(DENSE[0, 0]), lambda: DENSE[0, 0]),
    "dense, padding of keys": (rg.dense(DENSE[:, :1, :1]), lambda: DENSE[:, :1, :1]),
    "dense, keys only": (rg.dense(DENSE[0, 0, 0]), lambda: DENSE[0, 0, 0]),
    "dense, last rows": (rg.dense(DENSE[0, 0, :4]), lambda: DENSE[0, 0, np.clip(q - 5, 0, 3), k]),
    "dense, first rows": (rg.dense(DENSE[0, 0, :4], query_start=0), lambda: DENSE[0, 0, np.minimum(q, 3), k]),
    "dense, one column": (rg.dense(DENSE[0, 0, :, :1], query_start=0), lambda: DENSE[0, 0, q, 0]),
    "composed": (
        ~rg.causal() & rg.window(None, 3) | rg.dilated(4),
        lambda: (k > q) & (k <= q + 3) | ((q - k) % 4 == 0),
    ),
}


@pytest.mark.parametrize(("mask", "definition"), ROWS.values(), ids=ROWS)
def test_a_mask_equals_its_definition(mask, definition):
    """The expression's value is the brute-force matrix."""
    found = evaluate(mask, {"batch": b, "head": h, "query": q, "key": k})

    assert found.dtype == np.bool_
    assert np.array_equal(np.broadcast_to(found, (B, H, Q, K)), np.broadcast_to(definition(), (B, H, Q, K)))


def test_every_factory_is_tested():
    """A new factory of masks comes with a row above."""
    from regard.language import masks

    tested = {name.split(",")[0].split()[0] for name in ROWS} | {"global_tokens"}

    assert set(masks.__all__) <= tested


@pytest.mark.parametrize("width", [1, 2, 5])
def test_windows_of_other_libraries(width):
    """How others count: Flash attention's (l, r) leaves the row out, transformers' sliding_window counts it."""
    flash_left = (q - k <= width) & (k - q <= 0)
    transformers = pytest.importorskip("transformers.masking_utils").sliding_window_overlay(width)(0, 0, q, k) & (
        k <= q
    )

    assert np.array_equal(evaluate(rg.window(width + 1), {"query": q, "key": k}), flash_left)
    assert np.array_equal(evaluate(rg.window(width), {"query": q, "key": k}), transformers)


def test_masks_keep_their_own_copy_of_descriptions():
    """Lists of ids, lengths and tokens are copied and frozen, so that plans made from them can be kept."""
    from regard.language.expr import tables_of

    ids = IDS[0].copy()
    mask = rg.documents(ids)
    ids[:] = 0

    assert all(table.frozen for table in tables_of(mask).values())
    assert np.array_equal(evaluate(mask, {"query": q, "key": k}), IDS[0][q] == IDS[0][k])


def test_a_dense_mask_is_a_view():
    """A boolean array is read in place, without a copy."""
    from regard.language.expr import tables_of

    (shown,) = tables_of(rg.dense(DENSE)).values()

    assert shown.array is DENSE


def test_torch_tensors_describe_masks_too():
    """ids, lengths and arrays may be tensors."""
    torch = pytest.importorskip("torch")

    assert np.array_equal(
        evaluate(rg.documents(torch.from_numpy(IDS)), {"batch": b, "query": q, "key": k}), IDS[b, q] == IDS[b, k]
    )
    assert rg.lengths(torch.tensor(5)) is rg.lengths(5)
    assert rg.window(torch.tensor(4)) is rg.window(4)


def test_numbers_in_every_spelling():
    """NumPy's integers and arrays without axes count like Python's; 0 is a length."""
    four = np.int64(4)

    assert (
        rg.window(four, np.array(0)) is rg.window(4) and rg.prefix(four) is rg.prefix(4) and rg.lengths(0) is (key < 0)
    )
    assert rg.global_tokens(four) is rg.global_tokens(4)
    assert rg.blocks(PATTERN, four) is rg.blocks(PATTERN, (4, np.int32(4))) is rg.blocks(PATTERN, 4)


REFUSED = [
    (lambda: rg.documents([0, 1], lengths=[1, 1]), "given     both ids and lengths"),
    (lambda: rg.documents(lengths=[3, -1]), "documents: a length is negative"),
    (lambda: rg.documents([0.5, 1.0]), "documents: not a list of integers"),
    (lambda: rg.documents(np.zeros((1, 2, 3), int)), "integers with 1 or 2 axes"),
    (lambda: rg.global_tokens([-1]), "global_tokens: a position is negative"),
    (lambda: rg.global_tokens(-1), "global_tokens: the number of tokens is negative"),
    (lambda: rg.global_tokens([2**62]), "positions below 2**31"),
    (lambda: rg.global_tokens(True), "the number of tokens is not an integer"),
    (lambda: rg.documents(lengths=[10**11]), "fewer than 2**31 positions"),
    (lambda: rg.documents([[0, 1], [0]]), "documents: the array cannot be read"),
    (lambda: rg.prefix(-1), "prefix: the number is negative"),
    (lambda: rg.prefix([3, -1]), "prefix: a number is negative"),
    (lambda: rg.lengths([3, -1]), "keys: a number is negative"),
    (lambda: rg.lengths(queries=2.5), "queries: the number is not an integer"),
    (lambda: rg.window(float("nan")), "window: left is not an integer"),
    (lambda: rg.window(4, -1), "window: right is negative"),
    (lambda: rg.dilated(0), "expression: division by zero"),
    (lambda: rg.blocks(PATTERN, 0), "blocks: the size is too small"),
    (lambda: rg.blocks(PATTERN, 2.5), "blocks: the size is not an integer"),
    (lambda: rg.blocks(PATTERN, "a"), "blocks: the size is not an integer"),
    (lambda: rg.blocks(PATTERN, (1, 2, 3)), "blocks: size must be an int or (queries, keys)"),
    (lambda: rg.dense([[True], [True, False]]), "the array cannot be read"),
    (lambda: rg.dense(np.ma.masked_array(PATTERN, PATTERN)), "the mask of a masked array would be ignored"),
    (lambda: rg.blocks(np.ones((2, 2)), 4), "pattern: not an array of conditions"),
    (lambda: rg.dense(np.ones((1, 1, 1, 2, 2), bool)), "booleans with one to four axes"),
    (lambda: rg.dense(np.ones((4, 1), bool)), "an array with one column needs query_start"),
    (lambda: rg.prefix("4"), "prefix: the number is not an integer"),
]


@pytest.mark.parametrize(("build", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_is_not_a_mask_is_refused(build, words):
    """Invalid arguments raise `Refused` with these messages."""
    with pytest.raises(rg.Refused) as caught:
        build()

    assert words in str(caught.value)
