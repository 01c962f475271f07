"""The law itself: against torch, against finite differences, and against its own parts."""

import tracemalloc

import numpy as np
import pytest
from hypothesis import given

import regard as rg
from regard.engines.reference import attention as reference
from regard.language.expr import tables_of
from regard.language.problem import Problem
from tests.support.lanes import examples
from tests.support.strategies import problems

B, G, H, Q, K, D, E = 2, 2, 4, 5, 6, 3, 2


def normal(*shape, seed=7):
    return np.random.default_rng(seed).standard_normal(shape)


def arrays():
    return normal(B, H, Q, D, seed=1), normal(B, G, K, D, seed=2), normal(B, G, K, E, seed=3)


def every(problem):
    return reference.weights(problem, np.arange(problem.dims["Q"]), np.arange(problem.dims["K"]))


s = rg.score
height = rg.table(normal(K), "height")
RULES = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "window": {"mask": rg.window(2, 1)},
    "documents": {"mask": rg.documents([0, 0, 0, 1, 1, 2])},
    "empty rows": {"mask": rg.causal() & (rg.query != 2)},
    "nothing": {"mask": rg.key < 0},
    "start": {"mask": rg.causal(), "query_start": np.array([-2, 3])},
    "sinks": {"mask": rg.causal() & (rg.query > 2), "sinks": normal(H)},
    "three sinks": {"mask": rg.window(2), "sinks": normal(H, 3)},
    "softcap": {"score": rg.softcap(0.7), "mask": rg.causal()},
    "alibi": {"score": rg.alibi(abs(normal(H)))},
    "bias": {"score": rg.bias(normal(B, 1, Q, K), query_start=K - Q)},
    "relative": {"score": rg.relative(normal(H, 5)), "mask": rg.causal()},
    "gate": {"score": rg.gate(normal(H, Q, K), query_start=K - Q)},
    "t5": {"score": rg.t5_buckets(normal(8, H), bidirectional=True, max_distance=5)},
    "where": {"score": rg.where((rg.key + rg.head) % 2 == 0, s * s, rg.where(rg.key == 1, float("-inf"), -s))},
    "twice": {"score": s * height[rg.key] + rg.tanh(height[rg.query - rg.key]), "mask": rg.causal()},
    "composed": {"score": rg.softcap(2.0, rg.relative(normal(7), rg.alibi(abs(normal(H))))), "sinks": np.ones(H)},
    "without the score": {"score": height[rg.query] * rg.sin(0.3 * rg.key)},
    "dropout": {"mask": rg.causal(), "sinks": normal(H), "dropout": 0.4, "seed": 11},
    "scale": {"scale": -0.9, "score": rg.exp(0.3 * s) + rg.sigmoid(s)},
}


def loss(problem, dout, dlse):
    out, lse = reference.forward(problem)
    return (out * dout).sum() + (np.where(np.isfinite(lse), lse, 0) * dlse).sum()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_backward_agrees_with_finite_differences(rule):
    """Each gradient is the slope of Σ out · dout + Σ lse · dlse, measured by moving one number at a time."""
    problem = Problem.of(*arrays(), **rule)
    dout, dlse = normal(B, H, Q, E), normal(B, H, Q)
    found = reference.backward(problem, dout, dlse)
    pairs = list(zip((problem.q, problem.k, problem.v), found[:3]))
    pairs += [(read.array, gradient) for read, gradient in found.tables.items()]
    pairs += [] if problem.sinks is None else [(problem.sinks, found.sinks)]
    h = 1e-5
    for numbers, gradient in pairs:
        assert gradient.shape == numbers.shape
        slope = np.zeros(numbers.shape)
        for place in np.ndindex(numbers.shape):
            kept = numbers[place]
            ends = []
            for numbers[place] in (kept + h, kept - h):
                ends.append(loss(problem, dout, dlse))
            numbers[place] = kept
            slope[place] = (ends[0] - ends[1]) / (2 * h)
        np.testing.assert_allclose(gradient, slope, rtol=1e-6, atol=1e-8)


def test_every_float_table_of_the_score_gets_a_gradient():
    """Tables of numbers that the score reads have an entry, even one that is zero; tables of integers and of masks have
    none.
    """
    step = rg.table(np.array([0.5, 1.5]), "step")
    number = rg.table(np.array([0, 1]), "number")
    score = rg.where(step[0] < 1, s, 0.0) + height[number[rg.key % 2]]
    problem = Problem.of(*arrays(), score=score, mask=rg.table(np.ones(K), "mask")[rg.key] > 0)
    found = reference.backward(problem, np.ones((B, H, Q, E)), np.ones((B, H, Q)))
    assert set(found.tables) == {step, height}
    assert not found.tables[step].any()
    assert found.tables[height].sum() == pytest.approx(B * H * Q)  # d lse / d score sums to 1 per row
    assert set(tables_of(score).values()) == {step, height, number}


@examples(60)
@given(problems(dtypes=(np.float64,), rows=10, depth=6))
def test_backward_along_a_random_direction(case):
    """On random problems the gradient predicts the change along a random direction of q, k, v and sinks."""
    noise = np.random.default_rng(0)
    given_ = {name: case.kwargs[name] for name in ("q", "k", "v", "sinks") if case.kwargs[name] is not None}
    step = {name: noise.standard_normal(array.shape) for name, array in given_.items()}

    def at(h):
        return Problem.of(**case.kwargs | {name: array + h * step[name] for name, array in given_.items()})

    dout, dlse = (noise.standard_normal(part.shape) for part in reference.forward(at(0)))
    found = reference.backward(at(0), dout, dlse)
    predicted = 0.0
    for name, direction in step.items():
        gradient = getattr(found, name)
        if name in "kv" and direction.ndim == 4 and len(direction) == 1:
            gradient = gradient.sum(0)  # one entry of keys and values served the whole batch
        predicted += (gradient.reshape(direction.shape) * direction).sum()
    h = 1e-6
    slope = (loss(at(h), dout, dlse) - loss(at(-h), dout, dlse)) / (2 * h)
    assert predicted == pytest.approx(slope, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_weights_are_what_forward_used(rule):
    """weights @ v is the output; a rectangle in any order is a cut of the whole; rows and sinks together sum to 1."""
    problem = Problem.of(*arrays(), **rule)
    out, lse = reference.forward(problem)
    p = every(problem)
    np.testing.assert_allclose(p @ np.repeat(problem.v, H // G, 1), out, rtol=1e-12, atol=1e-15)
    rows, keys = np.array([3, 0, 3]), np.array([5, 1])
    np.testing.assert_array_equal(reference.weights(problem, rows, keys), p[:, :, rows][..., keys])
    sinks = np.zeros((H, 0)) if problem.sinks is None else problem.sinks
    total = p.sum(-1) + np.exp(sinks[:, None] - lse[..., None]).sum(-1)
    if "dropout" not in rule:
        np.testing.assert_allclose(total, np.isfinite(lse), rtol=1e-12)


def test_weights_of_a_corner_need_no_matrix():
    """One row of 30,000 × 30,000 takes a few blocks of memory; the matrix would be 7 GB."""
    x = normal(30_000, 16).astype(np.float32)
    problem = Problem.of(x, x, None, mask=rg.causal())
    last = reference.weights(problem, np.array([29_999]), np.arange(30_000))
    assert last.sum() == pytest.approx(1)
    tracemalloc.start()
    many = reference.weights(problem, np.arange(29_900, 30_000), np.array([0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert many.shape == (1, 1, 100, 1)
    assert peak < 16e6


@pytest.mark.parametrize("empty", ["B", "H", "Q", "K"])
@pytest.mark.parametrize("composed", [False, True])
def test_nothing_at_all(empty, composed):
    """No batch, no heads, no rows or no keys: everything has its shape, nothing is NaN."""
    b, h, n, m = (0 if axis == empty else size for axis, size in zip("BHQK", (2, 2, 3, 4)))
    rules = {"score": rg.softcap(2.0) + height[rg.query - rg.key], "sinks": np.zeros((h, 2))} if composed else {}
    qkv = [np.ones((b, h, *size)) for size in ((n, 3), (m, 3), (m, 5))]
    problem = Problem.of(*qkv, **rules)
    out, lse = reference.forward(problem)
    assert (out.shape, lse.shape, every(problem).shape) == ((b, h, n, 5), (b, h, n), (b, h, n, m))
    found = reference.backward(problem, np.ones(out.shape), np.ones(lse.shape))
    assert [part.shape for part in found[:3]] == [part.shape for part in qkv]
    assert not any(np.isnan(part).any() for part in (out, lse, *found[:3]))
    if empty == "K":
        assert not out.any() and np.all(lse == (np.log(2) if composed else -np.inf))


@pytest.mark.parametrize("rule", ["plain", "causal", "bias"])
def test_torch_says_the_same(rule):
    """Output and gradients are those of torch's scaled_dot_product_attention in float64."""
    torch = pytest.importorskip("torch")
    bias = normal(B, H, Q, K)
    rules, added = {
        "plain": ({}, None),
        "causal": ({"mask": rg.causal()}, torch.ones(Q, K, dtype=torch.bool).tril(K - Q)),
        "bias": ({"score": rg.bias(bias, query_start=K - Q)}, torch.tensor(bias, requires_grad=True)),
    }[rule]
    leaves = [torch.tensor(part, requires_grad=True) for part in arrays()]
    expected = torch.nn.functional.scaled_dot_product_attention(*leaves, attn_mask=added, enable_gqa=True)
    problem, dout = Problem.of(*arrays(), **rules), normal(B, H, Q, E)
    expected.backward(torch.from_numpy(dout))
    np.testing.assert_allclose(reference.forward(problem)[0], expected.detach(), rtol=1e-12, atol=1e-14)
    found = reference.backward(problem, dout)
    for ours, theirs in zip((*found[:3], *found.tables.values()), (*leaves, added)):
        np.testing.assert_allclose(ours, theirs.grad, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("low", [-1e20, float(np.finfo(np.float32).min), 1e20, 1e300])
def test_scores_of_any_size_have_weights_that_sum_to_one(low):
    """A row whose scores are all huge and equal is a mean: its weights sum to 1, in the output and the gradients too;
    sinks as large as the scores take equal shares, and sinks far above them everything.
    """
    score = rg.bias(np.full((Q, K), low))
    problem = Problem.of(*arrays(), score=score)
    np.testing.assert_allclose(every(problem), 1 / K)
    mean = np.repeat(problem.v, H // G, axis=1).mean(2, keepdims=True)
    np.testing.assert_allclose(reference.forward(problem)[0], np.broadcast_to(mean, (B, H, Q, E)))
    np.testing.assert_allclose(reference.backward(problem, np.ones((B, H, Q, E))).v, Q / K * H / G)
    beside = every(Problem.of(*arrays(), score=score, sinks=np.full((H, 2), low)))
    np.testing.assert_allclose(beside, 1 / (K + 2))
    assert not every(Problem.of(*arrays(), sinks=np.full(H, abs(low)))).any()
