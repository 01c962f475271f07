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
    pairs = [(problem.q, found.q), (problem.k, found.k), (problem.v, found.v)]
    pairs += [(read.array, found.tables[read]) for read in found.tables]
    if problem.sinks is not None:
        pairs.append((problem.sinks, found.sinks))
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
    names = [name for name in ("q", "k", "v", "sinks") if case.kwargs[name] is not None]
    step = {name: noise.standard_normal(case.kwargs[name].shape) for name in names}

    def at(h):
        return Problem.of(**(case.kwargs | {name: case.kwargs[name] + h * step[name] for name in names}))

    problem = at(0)
    out, lse = reference.forward(problem)
    dout, dlse = noise.standard_normal(out.shape), noise.standard_normal(lse.shape)
    found = reference.backward(problem, dout, dlse)
    predicted = 0.0
    for name in names:
        gradient = getattr(found, name)
        if name in "kv" and case.kwargs[name].ndim == 4 and case.kwargs[name].shape[0] == 1:
            gradient = gradient.sum(0)  # one entry of keys and values served the whole batch
        predicted += (gradient.reshape(step[name].shape) * step[name]).sum()
    h = 1e-6
    assert predicted == pytest.approx(
        (loss(at(h), dout, dlse) - loss(at(-h), dout, dlse)) / (2 * h), rel=1e-4, abs=1e-5
    )


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
    np.testing.assert_allclose(total, np.isfinite(lse), rtol=1e-12)


def test_weights_of_a_corner_need_no_matrix():
    """One row of 100,000 × 100,000 takes a few blocks of memory; the matrix would be 80 GB."""
    x = normal(100_000, 16).astype(np.float32)
    problem = Problem.of(x, x, None, mask=rg.causal())
    last = reference.weights(problem, np.array([99_999]), np.arange(100_000))
    assert last.sum() == pytest.approx(1)
    tracemalloc.start()
    many = reference.weights(problem, np.arange(99_900, 100_000), np.array([0]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert many.shape == (1, 1, 100, 1)
    assert peak < 16e6


def test_weights_stream_over_blocks():
    """Rows and keys beyond one block meet the same denominators."""
    rows, keys = reference.ROWS + 9, reference.KEYS + 9
    q, k = normal(rows, 4), normal(keys, 4, seed=8)
    problem = Problem.of(q, k, None, sinks=np.array([1.0]), mask=rg.window(500))
    _, lse = reference.forward(problem)
    distance = np.arange(rows)[:, None] + keys - rows - np.arange(keys)
    scores = np.where((distance >= 0) & (distance < 500), q @ k.T / 2, -np.inf)
    np.testing.assert_allclose(every(problem)[0, 0], np.exp(scores - lse[0, 0, :, None]), rtol=1e-12)


@pytest.mark.parametrize("empty", ["B", "H", "Q", "K"])
@pytest.mark.parametrize("rule", ["plain", "composed"])
def test_nothing_at_all(empty, rule):
    """No batch, no heads, no rows or no keys: everything has its shape, nothing is NaN."""
    size = {"B": 2, "H": 2, "Q": 3, "K": 4} | {empty: 0}
    b, h, n, m = size.values()
    score = None if rule == "plain" else rg.softcap(2.0) + height[rg.query - rg.key]
    sinks = None if rule == "plain" else np.zeros((h, 2))
    problem = Problem.of(np.ones((b, h, n, 3)), np.ones((b, h, m, 3)), np.ones((b, h, m, 5)), score=score, sinks=sinks)
    out, lse = reference.forward(problem)
    assert (out.shape, lse.shape) == ((b, h, n, 5), (b, h, n))
    assert every(problem).shape == (b, h, n, m)
    found = reference.backward(problem, np.ones(out.shape), np.ones(lse.shape))
    assert [part.shape for part in found[:3]] == [problem.q.shape, problem.k.shape, problem.v.shape]
    assert not any(np.isnan(part).any() for part in (out, lse, *found[:3]))
    if empty == "K":
        assert not out.any()
        assert np.all(lse == (-np.inf if sinks is None else np.log(2)))


@pytest.mark.parametrize("rule", ["plain", "causal", "bias"])
def test_torch_says_the_same(rule):
    """Output and gradients are those of torch's scaled_dot_product_attention in float64."""
    torch = pytest.importorskip("torch")
    q, k, v = arrays()
    mask, score, added = None, None, None
    if rule == "causal":
        mask, added = rg.causal(), torch.ones(Q, K, dtype=torch.bool).tril(K - Q)
    if rule == "bias":
        numbers = normal(B, H, Q, K)
        score, added = rg.bias(numbers, query_start=K - Q), torch.tensor(numbers, requires_grad=True)
    problem = Problem.of(q, k, v, mask=mask, score=score)
    tensors = [torch.tensor(part, requires_grad=True) for part in (q, k, v)]
    expected = torch.nn.functional.scaled_dot_product_attention(*tensors, attn_mask=added, enable_gqa=True)
    dout = normal(B, H, Q, E)
    expected.backward(torch.from_numpy(dout))
    out, _ = reference.forward(problem)
    found = reference.backward(problem, dout)
    np.testing.assert_allclose(out, expected.detach().numpy(), rtol=1e-12, atol=1e-14)
    for ours, theirs in zip(found[:3], tensors):
        np.testing.assert_allclose(ours, theirs.grad.numpy(), rtol=1e-11, atol=1e-13)
    if rule == "bias":
        (dbias,) = found.tables.values()
        np.testing.assert_allclose(dbias, added.grad.numpy(), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("low", [-1e20, float(np.finfo(np.float32).min), 1e20, 1e300])
def test_scores_of_any_size_have_weights_that_sum_to_one(low):
    """A row whose scores are all huge and equal is a mean: its weights sum to 1, in the output and the gradients
    too.
    """
    problem = Problem.of(*arrays(), score=rg.bias(np.full((Q, K), low)))
    v_BHKE = np.repeat(problem.v, H // G, axis=1)
    np.testing.assert_allclose(every(problem).sum(-1), 1)
    np.testing.assert_allclose(
        reference.forward(problem)[0], np.broadcast_to(v_BHKE.mean(2, keepdims=True), (B, H, Q, E))
    )
    found = reference.backward(problem, np.ones((B, H, Q, E)))
    np.testing.assert_allclose(found.v, Q / K * H / G)


def test_sinks_far_above_take_everything():
    """A sink of 1e20 beside scores around 0 leaves weights of 0; beside scores of 1e20 each takes its equal share."""
    beside = every(Problem.of(*arrays(), score=rg.bias(np.full((Q, K), 1e20)), sinks=np.full((H, 2), 1e20)))
    np.testing.assert_allclose(beside, 1 / (K + 2))
    assert (every(Problem.of(*arrays(), sinks=np.full(H, 1e20))) == 0).all()
