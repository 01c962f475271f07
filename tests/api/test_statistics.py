"""Statistics of the weights: what each measure means, in every engine, from the matrix that small problems can
afford.
"""

import numpy as np
import pytest

import regard as rg
from regard.language.measures import checked_request
from tests.engines.jit.test_statistics import numbers, usual
from tests.support.engines import engines, qkv
from tests.support.lanes import by_name
from tests.support.refusals import whats, word_for_word

CAUSAL = rg.causal()

CLOSE = {"rtol": 2e-4, "atol": 2e-5}
RULES = {
    "plain": {},
    "causal": {"mask": CAUSAL},
    "window, softcap": {"mask": CAUSAL & rg.window(9), "score": rg.softcap(2.0)},
    "sinks": {"mask": rg.key != rg.query, "sinks": np.array([0.5, -1.0], np.float32)},
    "chunk": {"mask": CAUSAL, "query_start": 4},
    "rows that attend nothing": {"mask": rg.query % 3 > 0},
    "negative scale": {"scale": -0.7},
}
rules = by_name("rules", RULES)
ROWS = ["lse", "maximum", "entropy", "distance", "range", "counts"]
POOLED = rg.pooled(2, 2)
EVERYTHING = [*ROWS, "received", rg.mass(rg.key < 4), rg.top(3), POOLED]


def pair(**sizes):
    q, k, _ = qkv(**sizes)
    return q, k


def same_answers(found, expected):
    """Equal numbers in every array of every answer."""
    for name in expected:
        np.testing.assert_equal(found[name], expected[name])


@engines
@rules
def test_measures_of_a_row(engine, rules):
    """What each measure says of the weights of a row, and what each key receives from all rows.

    Sinks count in lse, and have no term in the entropy. Mean and variance of query − key are under weights that are
    scaled to a sum of 1 over the keys. top gives the largest weights in order; weight 0 and key −1 where the attended
    keys run out, as in an empty row. Cells of a map differ by one row and one key at most.
    """
    q, k = pair()
    wide = [each.astype(np.float64) for each in (q, k)]
    p = rg.attention_weights(*wide, **rules)
    falling, attended = -np.sort(-p, -1)[..., :12], (p > 0).sum(-1)
    rows, columns = np.arange(4) * 19 // 3, np.arange(5) * 37 // 4
    cells = [each.reduceat(each.reduceat(p, rows[:-1], -2), columns[:-1], -1) for each in (np.add, np.maximum)]
    measures = [*ROWS, "received", rg.mass(rg.key > rg.query), rg.top(12), rg.pooled(3, 4)]
    found = rg.attention_stats(q, k, of=measures, engine=engine, **rules)
    in_numpy = usual(checked_request(*wide, measures, **rules))
    in_numpy["pooled"] = [cells[0] / np.outer(np.diff(rows), np.diff(columns)), cells[1]]
    in_numpy["top"] = [falling]
    for name, expected in in_numpy.items():
        for mine, part in zip(numbers(name, found[name]), expected, strict=True):
            np.testing.assert_allclose(mine, part, **CLOSE, err_msg=name)
    at_key = np.where(falling > 0, np.take_along_axis(p, found.top.key, -1), 0)
    np.testing.assert_allclose(at_key, falling, **CLOSE)
    for mine, expected in (
        (found.maximum.key, np.where(attended, p.argmax(-1), -1)),
        (found.counts.attended, attended),
        (found.counts.empty, attended == 0),
        (found.counts.nan | found.counts.inf, np.zeros_like(attended)),
        (found.top.key >= 0, falling > 0),
    ):
        np.testing.assert_array_equal(mine, expected)


@engines
def test_a_measure_is_the_same_alone(engine):
    """What else is requested changes no bit of an answer."""
    given = {"engine": engine, **RULES["window, softcap"]}
    together = rg.attention_stats(*pair(), of=EVERYTHING, **given)
    for measure in EVERYTHING:
        same_answers(together, rg.attention_stats(*pair(), of=[measure], **given))


@engines
def test_mass_on_sets_of_keys(engine):
    """Σ p over any set that a mask can describe: a callable, an array, None; several at once, each by its name."""
    document = np.arange(37) // 5
    own = document[18:, None] == document
    sets = {"called": (lambda b, h, q, kv: kv < 4, np.arange(37) < 4), "own": (own, own), "all": (None, 1)}
    measures = [rg.mass(keys, name=name) for name, (keys, _) in sets.items()]
    found = rg.attention_stats(*pair(), of=measures, mask=CAUSAL, engine=engine)
    weights = rg.attention_weights(*pair(), mask=CAUSAL)
    for name, (_, within) in sets.items():
        np.testing.assert_allclose(found[name], (weights * within).sum(-1), **CLOSE, err_msg=name)


# ---- what is not a number, and what is not there ---------------------------------------------------------------------


@engines
def test_a_row_that_attends_a_nan(engine):
    """A NaN or infinite score makes its row NaN, is counted, and reaches the keys and cells that its row attends:
    nothing else.
    """
    q, k = pair(H=1, B=1, Q=20, K=20)
    k[0, 0, 12] = np.nan
    k[0, 0, 15] = np.inf
    q[0, 0, 15:] = np.abs(q[0, 0, 15:])
    mask = rg.documents(lengths=[10, 10]) & CAUSAL
    found = rg.attention_stats(q, k, of=EVERYTHING, mask=mask, engine=engine)
    row = np.arange(20)
    broken = found.lse, found.entropy, *found.distance, found.mass, found.maximum.weight, found.top.weight[..., 0]
    for mine, first in (
        *((np.isnan(each), 12) for each in (*broken, found.range.maximum)),
        *((each, 12) for each in (found.maximum.key == -1, (found.top.key == -1)[..., 0], found.counts.nan)),
        (found.counts.inf, 15),
        (np.isnan(found.received), 10),
    ):
        np.testing.assert_array_equal(mine[0, 0], row >= first)
    for cells in found.pooled:
        np.testing.assert_array_equal(np.isnan(cells[0, 0]), [[False, False], [False, True]])


@engines
def test_masked_nans_do_not_leak(engine):
    """Keys that every row masks may contain anything: the result is bit-identical."""
    q, k = pair()
    before = rg.attention_stats(q, k, of=EVERYTHING, mask=rg.key < 30, engine=engine)
    k[:, :, 30:] = np.nan
    same_answers(rg.attention_stats(q, k, of=EVERYTHING, mask=rg.key < 30, engine=engine), before)


@engines
def test_the_first_of_equal_keys(engine):
    """Where several keys share the largest weight, the first is named; the others follow in order."""
    # Whole numbers, so that equal keys have equal scores to the bit.
    q, k = (np.round(each) for each in pair(Q=40, K=300))
    k[:] = k[..., :1, :]
    found = rg.attention_stats(q, k, of=["maximum", rg.top(5)], mask=rg.key >= rg.query - 260, engine=engine)
    first = np.arange(40)
    assert (found.maximum.key == first).all() and (found.top.key == first[:, None] + np.arange(5)).all()


# ---- the answer as an object -----------------------------------------------------------------------------------------


@engines
@pytest.mark.parametrize("lead", [(), (2, 2, 3)])
@pytest.mark.parametrize(("Q", "K"), [(6, 9), (0, 5), (5, 0), (0, 0)])
def test_shapes_are_those_of_the_call(engine, lead, Q, K):
    """Leading axes come back as they were given; keys are counted per query head. Rows without keys attend nothing,
    keys without rows receive nothing.
    """
    q, k = np.ones((*lead, Q, 4), np.float32), np.ones((*lead, K, 4), np.float32)
    measures = [measure for measure in EVERYTHING if Q * K or measure is not POOLED]
    found = rg.attention_stats(q, k, of=measures, engine=engine)
    for each in (found.entropy, found.distance.variance, found.mass, found.counts.nan, found.top.weight[..., 0]):
        assert each.shape == (*lead, Q)
    assert not Q * K or found.pooled.mean.shape == (*lead, 2, 2)
    np.testing.assert_allclose(found.received, np.full((*lead, K), Q / max(K, 1)), rtol=1e-6)
    assert (np.isneginf(found.lse) == (K == 0)).all() and ((found.top.key == -1) == (K == 0)).all()
    assert found.entropy.dtype == np.float32 and found.top.key.dtype == np.int64


def test_tensors_give_tensors():
    """torch tensors in, tensors out."""
    import torch

    found = rg.attention_stats(*map(torch.from_numpy, pair()), of=["entropy", "maximum"])
    assert isinstance(found.entropy, torch.Tensor) and found.maximum.key.dtype == torch.int64
    np.testing.assert_array_equal(found.entropy, rg.attention_stats(*pair(), of="entropy").entropy)


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


MEASURES = "one of lse, maximum, entropy, distance, received, counts, range, mass, top, pooled"
CHOOSE = """\
choose one of 'lse', 'maximum', 'entropy', 'distance', 'received', 'counts', 'range', 'mass', 'top', 'pooled'"""


def requested(*of):
    return lambda: rg.attention_stats(*pair(), of=of)


REFUSALS = [
    (requested("entrpy"), f"""\
attention_stats: unknown measure
  given     'entrpy'
  expected  {MEASURES}
  fix       did you mean 'entropy'? {CHOOSE}"""),
    (requested(7), f"""\
attention_stats: unknown measure
  given     7
  expected  {MEASURES}
  fix       {CHOOSE}"""),
    (requested(), """\
attention_stats: no measure was requested
  given     of=()
  expected  at least one measure
  fix       choose from lse, maximum, entropy, distance, received, counts, range, mass, top, pooled"""),
    (requested("entropy", "lse", "entropy"), """\
attention_stats: two measures are called 'entropy'
  given     entropy, lse, entropy
  expected  one name for each
  fix       request it once"""),
    (requested(rg.mass(rg.key < 1), rg.mass(rg.key < 2)), """\
attention_stats: two measures are called 'mass'
  given     mass, mass
  expected  one name for each
  fix       name them: mass(…, name='another')"""),
    (requested(rg.pooled(20, 30)), """\
attention_stats: pooled has more cells than the matrix
  given     20 × 30
  expected  at most Q × K = 19 × 37
  fix       pooled(19, 30)"""),
    (requested(rg.mass(rg.key + 1, name="later")), """\
attention_stats: later: a mask must be a condition
  given     `key + 1`, which is int
  expected  true where a query may attend
  fix       compare it with something, or add it to the scores: score=score + (key + 1)"""),
    (requested("top"), """\
attention_stats: top needs arguments
  given     'top'
  expected  regard.top(…)
  fix       write regard.top(5)"""),
    (lambda: rg.attention_stats(*pair(), of="lse", engine="sdpa"), """\
attention_stats: no such engine
  given     engine='sdpa'
  expected  one of auto, jit, reference
  fix       choose one of 'auto', 'jit', 'reference'"""),
    (lambda: rg.top(0), """\
top: count is not a valid count
  given     count=0
  expected  an integer, 1 … 1024
  fix       pass an integer"""),
    (lambda: rg.top(True), """\
top: count is not a valid count
  given     count=True
  expected  an integer, 1 … 1024
  fix       pass an integer"""),
    (lambda: rg.pooled(2, 1.5), """\
pooled: columns is not a valid count
  given     columns=1.5
  expected  an integer, 1 … 2147483648
  fix       pass an integer"""),
    (lambda: rg.mass(rg.key < 4, name="first tokens"), """\
mass: a measure's name is not an identifier
  given     name='first tokens'
  expected  a Python identifier, such as 'first_tokens'
  fix       choose another"""),
]  # fmt: skip


test_refusals = word_for_word(REFUSALS)


def test_all_reasons_at_once():
    """A wrong measure and a wrong array are reported together."""
    q, k = pair()
    found = whats(rg.attention_stats, q, k[..., :3], of=["entropy", "masss", "pooled"])
    assert found == ["unknown measure", "pooled needs arguments", "q and k differ in depth"]
