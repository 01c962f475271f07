"""Statistics of the weights: what each measure means, in every engine, from the matrix that small problems can
afford.
"""

import numpy as np
import pytest

import regard as rg
from regard.engines.reference.attention import logits
from regard.language.problem import Problem
from tests.support.engines import engines, qkv
from tests.support.lanes import sweep

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
RULES = {
    "plain": {},
    "causal": {"mask": rg.causal()},
    "window, softcap": {"mask": rg.causal() & rg.window(9), "score": rg.softcap(2.0)},
    "sinks": {"mask": rg.key != rg.query, "sinks": np.array([0.5, -1.0], np.float32)},
    "chunk": {"mask": rg.causal(), "query_start": 4},
    "negative scale": {"scale": -0.7},
}
rules = pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
ROWS = ["lse", "maximum", "entropy", "distance", "range", "counts"]
EVERYTHING = [*ROWS, "received", rg.mass(rg.key < 4), rg.top(3), rg.pooled(2, 2)]


def pair(**sizes):
    q, k, _ = qkv(**sizes)
    return q, k


def leaves(answer):
    return answer if isinstance(answer, tuple) else (answer,)


def matrix(q, k, **rules):
    """The weights in float64."""
    return rg.attention_weights(q.astype(np.float64), k.astype(np.float64), **rules)


def positions(q, k, query_start=None, **_):
    start = k.shape[-2] - q.shape[-2] if query_start is None else query_start
    return start + np.arange(q.shape[-2])[:, None], np.arange(k.shape[-2])


@engines
@rules
def test_measures_of_a_row(engine, rules):
    """What each measure says of the weights of a row, and what each key receives from all rows.

    Sinks count in lse, and have no term in the entropy. Mean and variance of query − key are under weights that are
    scaled to a sum of 1 over the keys. top gives the largest weights in order; weight 0 and key −1 where the attended
    keys run out, as in an empty row.
    """
    q, k = pair()
    p = matrix(q, k, **rules)
    query, key = positions(q, k, **rules)
    scores, _ = logits(Problem.of(q, k, None, **rules), np.arange(19), np.arange(37))
    share = np.where(p.any(-1), p.sum(-1), 1)
    mean = (p * (query - key)).sum(-1) / share
    falling = -np.sort(-p, -1)[..., :12]
    found = rg.attention_stats(q, k, of=[*ROWS, "received", rg.top(12)], engine=engine, **rules)
    top = found.top
    for mine, expected in (
        (found.lse, rg.attention_with_lse(q, k, k, engine="reference", **rules)[1]),
        (found.maximum.weight, p.max(-1)),
        (found.entropy, -(p * np.log(np.where(p > 0, p, 1))).sum(-1)),
        (found.distance.mean, mean),
        (found.distance.variance, (p * (query - key - mean[..., None]) ** 2).sum(-1) / share),
        (found.range.minimum, np.where(scores == -np.inf, np.inf, scores).min(-1)),
        (found.range.maximum, scores.max(-1)),
        (found.received, p.sum(-2)),
        (top.weight, falling),
        (np.where(top.key >= 0, np.take_along_axis(p, np.maximum(top.key, 0), -1), 0), falling),
    ):
        np.testing.assert_allclose(mine, expected, **CLOSE)
    attended = (p > 0).sum(-1)
    for mine, expected in (
        (found.maximum.key, np.where(attended, p.argmax(-1), -1)),
        (found.counts.attended, attended),
        (found.counts.empty, attended == 0),
        (found.counts.nan | found.counts.inf, np.zeros(attended.shape)),
        (top.key >= 0, falling > 0),
    ):
        np.testing.assert_array_equal(mine, expected)


@engines
def test_a_measure_is_the_same_alone(engine):
    """What else is requested changes no bit of an answer."""
    q, k = pair()
    together = rg.attention_stats(q, k, of=EVERYTHING, engine=engine, **RULES["window, softcap"])
    for measure, name in zip(EVERYTHING, together, strict=True):
        alone = rg.attention_stats(q, k, of=[measure], engine=engine, **RULES["window, softcap"])
        for one, other in zip(leaves(alone[name]), leaves(together[name]), strict=True):
            np.testing.assert_array_equal(one, other)


@engines
@rules
def test_mass_on_sets_of_keys(engine, rules):
    """Σ p over any set that a mask can describe: an expression, a callable, an array; several at once, each by its
    name.
    """
    q, k = pair()
    p = matrix(q, k, **rules)
    query, key = positions(q, k, **rules)
    document = np.arange(64) // 5
    ids = rg.table(document, "document")
    chosen = np.arange(k.shape[-2]) % 3 == 0
    sets = {
        "first": (rg.key < 4, key < 4),
        "previous": (rg.key == rg.query - 1, key == query - 1),
        "own": (ids[rg.query] == ids[rg.key], document[np.clip(query, 0, 63)] == document[key]),
        "called": (lambda b, h, q, kv: kv > q, key > query),
        "thirds": (np.broadcast_to(chosen, (q.shape[-2], k.shape[-2])), chosen),
        "all": (rg.everything(), key >= 0),
    }
    measures = {name: rg.mass(keys, name=name) for name, (keys, _) in sets.items()}
    found = rg.attention_stats(q, k, of=measures.values(), engine=engine, **rules)
    for name, (_, within) in sets.items():
        np.testing.assert_allclose(found[measures[name]], (p * within).sum(-1), **CLOSE, err_msg=name)


@engines
@rules
@pytest.mark.parametrize(("row_cells", "key_cells"), [(3, 4), *sweep((1, 1), (19, 37), (5, 37), (19, 2))])
def test_pooled_maps(engine, rules, row_cells, key_cells):
    """Mean and maximum of the weights in each cell; cells differ by one row and one key at most, and cover everything
    once.
    """
    q, k = pair()
    p = matrix(q, k, **rules)
    rows, columns = (
        np.array_split(np.arange(size), np.arange(1, count) * size // count)
        for size, count in zip(p.shape[-2:], (row_cells, key_cells), strict=True)
    )
    parts = [[p[..., row[0] : row[-1] + 1, column[0] : column[-1] + 1] for column in columns] for row in rows]
    found = rg.attention_stats(q, k, of=[rg.pooled(row_cells, key_cells)], engine=engine, **rules).pooled
    for name in ("mean", "max"):
        expected = np.stack([np.stack([getattr(part, name)((-1, -2)) for part in row], -1) for row in parts], -2)
        np.testing.assert_allclose(getattr(found, "maximum" if name == "max" else name), expected, **CLOSE)


# ---- what is not a number, and what is not there ---------------------------------------------------------------------


@engines
def test_a_row_that_attends_nothing(engine):
    """lse −inf, key −1, range (inf, −inf), and 0 for all else: nothing that would poison a mean over rows."""
    q, k = pair()
    found = rg.attention_stats(q, k, of=EVERYTHING, mask=rg.query < 0, engine=engine)
    assert np.isneginf(found.lse).all() and found.counts.empty.all()
    assert (found.maximum.key == -1).all() and (found.top.key == -1).all()
    assert np.isposinf(found.range.minimum).all() and np.isneginf(found.range.maximum).all()
    zeros = (
        found.entropy,
        found.distance.mean,
        found.distance.variance,
        found.mass,
        found.maximum.weight,
        found.top.weight,
        found.received,
        *found.pooled,
    )
    assert not any(part.any() for part in zeros)


@engines
def test_a_row_that_attends_a_nan(engine):
    """A NaN or infinite score makes its row NaN, is counted, and reaches the keys and cells that its row attends:
    nothing else.
    """
    q, k = pair(H=1, B=1, Q=20, K=20)
    k[0, 0, 12] = np.nan
    k[0, 0, 15] = np.inf
    q[0, 0, 15:] = np.abs(q[0, 0, 15:])
    mask = rg.documents(lengths=[10, 10]) & rg.causal()
    found = rg.attention_stats(q, k, of=EVERYTHING, mask=mask, engine=engine)
    for row in (found.lse, found.entropy, *found.distance, found.mass, found.maximum.weight, found.top.weight[..., 0]):
        np.testing.assert_array_equal(np.isnan(row[0, 0]), np.arange(20) >= 12)
    np.testing.assert_array_equal(np.isnan(found.range.maximum[0, 0]), np.arange(20) >= 12)
    np.testing.assert_array_equal(found.counts.nan[0, 0], np.arange(20) >= 12)
    np.testing.assert_array_equal(found.counts.inf[0, 0], np.arange(20) >= 15)
    assert (found.maximum.key[0, 0, 12:] == -1).all() and (found.top.key[0, 0, 12:] == -1).all()
    np.testing.assert_array_equal(np.isnan(found.received[0, 0]), np.arange(20) >= 10)
    for cells in found.pooled:
        np.testing.assert_array_equal(np.isnan(cells[0, 0]), [[False, False], [False, True]])


@engines
def test_masked_nans_do_not_leak(engine):
    """Keys that every row masks may contain anything: the result is bit-identical."""
    q, k = pair()
    poisoned = k.copy()
    poisoned[:, :, 30:] = np.nan
    first, second = (
        rg.attention_stats(q, keys, of=EVERYTHING, mask=rg.key < 30, engine=engine) for keys in (k, poisoned)
    )
    for name in first:
        for one, other in zip(leaves(first[name]), leaves(second[name]), strict=True):
            np.testing.assert_array_equal(one, other)


@engines
def test_the_first_of_equal_keys(engine):
    """Where several keys share the largest weight, the first is named; the others follow in order."""
    q, k, _ = qkv(Q=40, K=300)
    # Whole numbers, so that equal keys have equal scores to the bit.
    q, k = np.round(q), np.round(k[..., :1, :].repeat(300, -2))
    found = rg.attention_stats(q, k, of=["maximum", rg.top(5)], mask=rg.key >= rg.query - 260, engine=engine)
    first = np.arange(40)
    np.testing.assert_array_equal(found.maximum.key, np.broadcast_to(first, found.maximum.key.shape))
    np.testing.assert_array_equal(found.top.key[0, 0], first[:, None] + np.arange(5))


@engines
@pytest.mark.parametrize(("Q", "K"), [(0, 5), (5, 0), (1, 1), (0, 0)])
def test_no_rows_or_no_keys(engine, Q, K):
    """Empty problems have empty answers; rows without keys attend nothing, keys without rows receive nothing."""
    q, k = np.ones((2, 3, Q, 4), np.float32), np.ones((2, 3, K, 4), np.float32)
    found = rg.attention_stats(q, k, of=EVERYTHING[:-1], engine=engine)
    assert (
        found.entropy.shape == found.distance.variance.shape == found.mass.shape == found.counts.nan.shape == (2, 3, Q)
    )
    assert found.top.weight.shape == (2, 3, Q, 3)
    np.testing.assert_array_equal(found.received, np.full((2, 3, K), Q if K == 1 else 0))
    assert (np.isneginf(found.lse) == (K == 0)).all()


# ---- the answer as an object -----------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("lead", [(), (3,), (2, 3), (2, 2, 3)])
def test_shapes_are_those_of_the_call(engine, lead):
    """Leading axes come back as they were given; keys are counted per query head."""
    q, k = np.ones((*lead, 6, 4), np.float32), np.ones((*lead, 9, 4), np.float32)
    found = rg.attention_stats(q, k, of=["entropy", "received", rg.top(2), rg.pooled(2, 3)], engine=engine)
    assert found.entropy.shape == (*lead, 6)
    assert found.received.shape == (*lead, 9)
    assert found.top.key.shape == (*lead, 6, 2)
    assert found.pooled.mean.shape == (*lead, 2, 3)
    assert found.entropy.dtype == np.float32 and found.top.key.dtype == np.int64


def test_tensors_give_tensors():
    """torch tensors in, tensors out."""
    torch = pytest.importorskip("torch", reason="torch is optional")
    q, k = map(torch.from_numpy, pair())
    found = rg.attention_stats(q, k, of=["entropy", "maximum"])
    assert isinstance(found.entropy, torch.Tensor) and found.maximum.key.dtype == torch.int64
    np.testing.assert_array_equal(found.entropy, rg.attention_stats(q.numpy(), k.numpy(), of=["entropy"]).entropy)


def test_answers_by_attribute_name_and_measure():
    """An answer is found in three ways; one that was not requested raises."""
    q, k = pair()
    first = rg.mass(rg.key < 4, name="first")
    found = rg.attention_stats(q, k, of=["entropy", first])
    assert found.first is found["first"] is found[first]
    assert list(found) == ["entropy", "first"] and len(found) == 2
    assert repr(found) == "Statistics(entropy: [2, 2, 19], first: [2, 2, 19])"
    with pytest.raises(AttributeError, match="'entropie' was not requested: did you mean 'entropy'"):
        found.entropie  # noqa: B018
    with pytest.raises(KeyError, match="'lse' was not requested"):
        found["lse"]


REFUSALS = [
    (
        ["entrpy"],
        """\
attention_stats: unknown measure
  given     'entrpy'
  expected  one of lse, maximum, entropy, distance, received, counts, range, mass, top, pooled
  fix       did you mean 'entropy'? choose one of 'lse', 'maximum', 'entropy', 'distance', 'received', 'counts', \
'range', 'mass', 'top', 'pooled'""",
    ),
    (
        [7],
        """\
attention_stats: unknown measure
  given     7
  expected  one of lse, maximum, entropy, distance, received, counts, range, mass, top, pooled
  fix       choose one of 'lse', 'maximum', 'entropy', 'distance', 'received', 'counts', 'range', 'mass', 'top', \
'pooled'""",
    ),
    (
        "top",
        """\
attention_stats: top needs arguments
  given     'top'
  expected  regard.top(…)
  fix       write regard.top(5)""",
    ),
    (
        [],
        """\
attention_stats: no measure was requested
  given     of=[]
  expected  at least one measure
  fix       choose from lse, maximum, entropy, distance, received, counts, range, mass, top, pooled""",
    ),
    (
        ["entropy", "lse", "entropy"],
        """\
attention_stats: two measures are called 'entropy'
  given     entropy, lse, entropy
  expected  one name for each
  fix       request it once""",
    ),
    (
        [rg.mass(rg.key < 1), rg.mass(rg.key < 2)],
        """\
attention_stats: two measures are called 'mass'
  given     mass, mass
  expected  one name for each
  fix       name them: mass(…, name='another')""",
    ),
    (
        [rg.pooled(20, 30)],
        """\
attention_stats: pooled has more cells than the matrix
  given     20 × 30
  expected  at most Q × K = 19 × 37
  fix       pooled(19, 30)""",
    ),
    (
        [rg.mass(rg.key + 1, name="later")],
        """\
attention_stats: later: a mask must be a condition
  given     `key + 1`, which is int
  expected  true where a query may attend
  fix       compare it with something, or add it to the scores: score=score + (key + 1)""",
    ),
]


@pytest.mark.parametrize(("of", "message"), REFUSALS)
def test_refusals(of, message):
    """Invalid requests raise `Refused` with these messages."""
    with pytest.raises(rg.Refused) as refused:
        rg.attention_stats(*pair(), of=of)
    assert str(refused.value) == message


def test_all_reasons_at_once():
    """A wrong measure and a wrong array are reported together."""
    q, k = pair()
    with pytest.raises(rg.Refused) as refused:
        rg.attention_stats(q, k[..., :3], of=["entropy", "masss", "pooled"])
    what = [reason.what for reason in refused.value.reasons]
    assert what == ["unknown measure", "pooled needs arguments", "q and k differ in depth"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: rg.top(0),
            "top: count is not a valid count\n  given     count=0\n  expected  an integer, 1 … 1024",
        ),
        (lambda: rg.top(True), "top: count is not a valid count\n  given     count=True"),
        (lambda: rg.pooled(2, 1.5), "pooled: columns is not a valid count\n  given     columns=1.5"),
        (
            lambda: rg.mass(rg.key < 4, name="first tokens"),
            "mass: a measure's name is not an identifier\n  given     name='first tokens'",
        ),
    ],
)
def test_measures_check_their_arguments(build, message):
    """An invalid measure raises when it is created."""
    with pytest.raises(rg.Refused) as refused:
        build()
    assert str(refused.value).startswith(message)


def test_a_named_engine_runs_or_refuses():
    """An engine that has no statistics is named as such."""
    with pytest.raises(
        rg.Refused, match="no such engine\n  given     engine='sdpa'\n  expected  one of auto, jit, reference"
    ):
        rg.attention_stats(*pair(), of=["entropy"], engine="sdpa")
