"""Keys selected for each row: the mask is that of the booleans, however few keys are copied for a row."""

import functools

import ml_dtypes
import numpy as np
import pytest
import torch

import regard as rg
from regard.engines import selected_keys
from regard.language.problem import Problem
from tests.support.engines import normal
from tests.support.lanes import sweep
from tests.support.refusals import refusing

CLIPPED = rg.table(normal(4, 101, seed=9), "distance")
SCORES = [
    None,
    rg.score + CLIPPED[rg.head % 4, rg.clip(rg.query - rg.key + 50, 0, 100)],
    rg.softcap(2.0) + 0.1 * rg.batch,
]
MASKS = [None, rg.causal(), (rg.head % 2 == 0) | (rg.key % 3 != 0), rg.lengths(np.array([30, 41]))]
TOLERANCE = {"float64": 1e-9, "float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}


def random_call(seed: int, dtype):
    """q, k, v, dout, the selected keys, and the other arguments of a call over few of many keys."""
    rng = np.random.default_rng(seed)
    B, G, shared = 2 if seed % 4 == 3 else rng.integers(1, 3), rng.choice([1, 2]), rng.choice([1, 3, 16])
    Q, K, (D, E) = rng.choice([1, 2, 7, 40]), rng.choice([400, 900]), rng.choice([4, 16, 33], 2)
    q, dout = (normal(B, G * shared, Q, depth, seed=seed, dtype=dtype) for depth in (D, E))
    k, v = (normal(B, G, K, depth, seed=seed + 1, dtype=dtype) for depth in (D, E))
    indices = rng.integers(-2, K, (rng.choice([1, B]), rng.choice([1, G * shared]), Q, rng.integers(1, 5)))
    return (q, k, v), dout, indices, {"query_start": int(rng.choice([0, K - Q])), "score": SCORES[seed % 3]}


def dense(indices: np.ndarray, keys: int) -> np.ndarray:
    """The selected keys as booleans (…, K)."""
    return (indices[..., None] == np.arange(keys)).any(-2)


@pytest.mark.spread
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("seed", [*range(5), 7, *sweep(5, 6, *range(8, 12))])  # each score and each mask
def test_selected_keys_are_a_mask(seed, dtype):
    """Forward and backward, alone and with other masks, under scores that learn, for grouped heads and selections of
    each head, with numbers that select nothing and repeated ones, anywhere on the key axis.
    """
    qkv, dout, indices, more = random_call(seed, dtype)
    start, other = more["query_start"], MASKS[seed % 4]
    selected = rg.selected_keys(indices, query_start=start)
    booleans = rg.dense(dense(indices, qkv[1].shape[2]), query_start=start)
    results = []
    for mask, engine in ((selected, "auto"), (booleans, "reference")):
        call = functools.partial(rg.attention_with_lse, engine=engine)
        rules = {"mask": mask if other is None else mask & other, **more}
        slopes = rg.attention_backward(dout, *qkv, engine=engine, **rules)
        results.append([*call(*qkv, **rules), *slopes[:3], *slopes.tables.values()])
    for found, expected in zip(*results, strict=True):
        found, expected = found.astype(float), expected.astype(float)
        size = np.abs(expected[np.isfinite(expected)]).max(initial=1)
        np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE[np.dtype(dtype).name] * size)


def test_few_keys_are_copied():
    """Where they are few beside all of them; under dropout, and where they are no limit, booleans are read."""
    (q, k, v), _, indices, more = random_call(2, np.float32)
    mask = rg.selected_keys(indices, query_start=more["query_start"]) & rg.causal()
    problem = functools.partial(Problem.of, q, k, v, query_start=more["query_start"])
    chosen, others = selected_keys.selection(problem(mask=mask))
    assert np.array_equal(chosen.indices, np.broadcast_to(indices, chosen.indices.shape)) and others == [rg.causal()]
    many = rg.selected_keys(np.tile(np.arange(300), (q.shape[2], 1)), query_start=more["query_start"])
    for rules in ({"mask": mask, "dropout": 0.5, "seed": 1}, {"mask": ~mask}, {"mask": many}, {"mask": rg.causal()}):
        assert selected_keys.selection(problem(**rules)) is None
    weights = rg.attention_weights(q, k, mask=mask, query_start=more["query_start"])
    assert not weights[..., ~dense(indices, k.shape[2]).any((0, 1, 2))].any()


def test_no_matrix_of_booleans_is_made():
    """Neither forward nor backward, of arrays and of tensors."""
    q, k = normal(1, 2, 6, 8), normal(1, 2, 600, 8)
    mask = rg.selected_keys(np.arange(12).reshape(6, 2), query_start=594) & rg.causal()
    for _ in range(2):
        rg.attention(q, k, k, mask=mask)
        rg.attention_backward(q, q, k, k, mask=mask)
        tensors = [torch.from_numpy(each).requires_grad_() for each in (q, k)]
        rg.attention(tensors[0], tensors[1], tensors[1], mask=mask).sum().backward()
    (table,) = mask.tables
    assert not any("array" in vars(each) for each in (table, *table.fit.values())) and table.fit


def test_tensors_and_programs():
    """Of torch: gradients of q, k and v, and a compiled program in which the numbers of the keys are its input."""
    q, k, v = (torch.randn(1, 2, rows, 8, requires_grad=True) for rows in (6, 600, 600))
    indices = torch.randint(600, (6, 3))

    def program(q, k, v, indices):
        return rg.attention(q, k, v, mask=rg.selected_keys(indices, query_start=594) & rg.causal(), query_start=594)

    mask = torch.from_numpy(dense(indices.numpy(), 600)) & (torch.arange(600) <= torch.arange(594, 600)[:, None])
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask | ~mask.any(-1, keepdim=True))
    expected = expected * mask.any(-1, keepdim=True)
    slopes = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for call in (program, torch.compile(program, backend="aot_eager", fullgraph=True)):
        out = call(q, k, v, indices)
        torch.testing.assert_close(out, expected)
        for found, slope in zip(torch.autograd.grad(out.square().sum(), (q, k, v)), slopes):
            torch.testing.assert_close(found, slope, atol=1e-5, rtol=1e-4)


def test_what_does_not_fit():
    """Numbers of keys that do not exist, lists of other rows, and what are no numbers."""
    q = k = np.zeros((1, 4, 8), np.float32)
    attend = functools.partial(rg.attention, q, k, k)
    with refusing("a selected key does not exist"):
        attend(mask=rg.selected_keys(np.full((4, 1), 4)))
    for mask, start in ((rg.selected_keys(np.zeros((3, 1), int)), 0), (rg.selected_keys(np.zeros((4, 1), int)), 1)):
        with refusing("the selected keys are those of other rows"):
            attend(mask=mask, query_start=start)
    for indices in (
        np.zeros((4, 2)),
        np.zeros(4, int),
        np.zeros((4, 4), bool),
        np.zeros((0, 2), int),
        np.full((4, 1), 2**31),
    ):
        with refusing("not the numbers of keys"):
            rg.selected_keys(indices)
    for none in (np.full((4, 2), -1), np.full((4, 1), -(2**40)), np.zeros((4, 0), int)):
        assert not attend(mask=rg.selected_keys(none)).any()
    assert np.array_equal(attend(mask=rg.selected_keys(np.zeros((1, 1), int)), query_start=3), k)
