"""Callables in the form of other libraries, traced: each means what it means on real index tensors.

The rules below are written the way public examples of programmable attention are, for torch and for NumPy.
"""

import functools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import and_masks, or_masks

import regard as rg
from regard.language.callables import as_mask, as_score
from regard.language.expr import key, query, score, tables_of
from tests.support.engines import at_every_pair
from tests.support.lanes import by_name
from tests.support.refusals import refused_in

pytestmark = pytest.mark.filterwarnings("ignore:__array_wrap__")  # torch's, when NumPy's functions meet its tensors

B, H, Q, K = 2, 3, 12, 12
GRID = np.ix_(*map(range, (B, H, Q, K)))
LOGITS = np.random.default_rng(0).standard_normal((B, H, Q, K))

document = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 2], [0, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 3]])
ids = document[0]
offsets = torch.tensor([0, 3, 7, 12])
lengths = torch.tensor([7, 12])
slopes = torch.tensor([0.5, 0.25, 0.125])
table_2d = torch.arange(2.0 * Q - 1)
random = torch.Generator().manual_seed(0)
relative = torch.randn(H, 2 * Q - 1, generator=random)
dense_bias = torch.randn(B, H, Q, K, generator=random)
allowed = torch.rand(B, K, generator=random) > 0.3
cells = torch.randint(3, (K, 3), generator=random)
points = torch.randn(K, 3, generator=random)
features = torch.randn(H, K, 4, generator=random)
member = torch.rand(K, 4, generator=random) > 0.5
bits = torch.randint(-(2**31), 2**31, (K, 2), dtype=torch.int32, generator=random)
WINDOW = 4


def positions():
    """Every (b, h, q, kv) as scalar tensors, which is how such rules are defined."""
    return zip(*(torch.from_numpy(part.ravel()) for part in np.broadcast_arrays(*GRID)))


def values(expression):
    """The expression's value at every position."""
    return at_every_pair(expression, LOGITS.shape, score=LOGITS).ravel()


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def sliding_window(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx < WINDOW) & (q_idx >= kv_idx)


def make_prefix(prefix_lengths):
    def prefix_lm(b, h, q_idx, kv_idx):
        return (kv_idx < prefix_lengths[b]) | causal(b, h, q_idx, kv_idx)

    return prefix_lm


def same_document(b, h, q_idx, kv_idx):
    return ids[q_idx] == ids[kv_idx]


def logical(b, h, q_idx, kv_idx):
    odd = torch.logical_not(torch.logical_or(kv_idx == 2, kv_idx.eq(5)))
    return torch.logical_and(torch.remainder(q_idx - kv_idx, 3) == 0, odd).logical_xor(
        torch.where(h == 0, kv_idx, h) > 1
    )


def new_ones(b, h, q_idx, kv_idx):
    real = q_idx.new_ones((), dtype=torch.bool) & torch.ones_like(kv_idx, dtype=torch.bool)
    return real & (kv_idx <= q_idx).to(q_idx.device)


def with_numpy(b, h, q_idx, kv_idx):
    chosen = np.logical_and(np.greater_equal(q_idx, kv_idx), np.where(q_idx % 2 == 0, kv_idx < 7, kv_idx >= 1))
    return chosen | (np.int64(8) <= kv_idx) & (np.int32(2) * q_idx > kv_idx)


class Rules:
    """Arrays and rules that belong to an object, as in a module."""

    def __init__(self):
        self.document, self.inner = document, SimpleNamespace(width=3)

    def mask(self, b, h, q_idx, kv_idx):
        return self.same(b, q_idx, kv_idx) & (q_idx - kv_idx < self.inner.width)

    def same(self, b, q_idx, kv_idx):
        return self.document[b, q_idx] == self.document[b][kv_idx]

    __call__ = mask


def keyword_defaults(b, h, q_idx, kv_idx, limits=lengths, *, extra=lengths):
    return (kv_idx < limits[b]) & (q_idx < extra[b])


def nested(b, h, q_idx, kv_idx):
    def closer(x):
        return abs(x - offsets[ids[kv_idx]]) < (lambda i: offsets[i % 4])(b + 1)

    return closer(q_idx)


def from_transformers():
    masking = pytest.importorskip("transformers.masking_utils")
    sliding = masking.sliding_window_causal_mask_function(4)
    return masking.and_masks(
        sliding, masking.padding_mask_function(allowed), masking.packed_sequence_mask_function(document)
    )


MASKS = {
    "sliding window": sliding_window,
    "padding": lambda b, h, q, kv: allowed[b, kv],
    "torch logic": logical,
    "new_ones": new_ones,
    "NumPy": with_numpy,
    "constant": lambda b, h, q, kv: True,
    "method": Rules().mask,
    "callable object": Rules(),
    "defaults": keyword_defaults,
    "nested functions": nested,
    "FlexAttention and_masks": and_masks(or_masks(causal, make_prefix(lengths)), same_document),
    "transformers and_masks": from_transformers,
    "partial": functools.partial(lambda limits, b, h, q, kv: kv < limits[b], lengths),
    "bits of words": lambda b, h, q, kv: (bits[q, kv // 7] >> (kv % 7 * 4)) & 1 == 1,
    "common bits": lambda b, h, q, kv: (bits[q, 0] & bits[kv, 1] & 3) != 0,
    "other bits": lambda b, h, q, kv: (~bits[q, 0] ^ bits[kv, 1] | 1 << kv) % 3 < 2,
    "bits beyond": lambda b, h, q, kv: (bits[q, 0].long() << (kv * 7)) > (bits[kv, 1].long() >> (q * 7)),
    "equal cells": lambda b, h, q, kv: (cells[q] == cells[kv]).any(-1) & ~(cells[q] == cells[kv]).all(dim=-1),
    "number of equal cells": lambda b, h, q, kv: (cells[q] == cells[kv]).sum(-1) >= 2,
    "distance of points": lambda b, h, q, kv: ((points[q] - points[kv]) ** 2).sum(-1) < 4,
    "norms": lambda b, h, q, kv: torch.linalg.vector_norm(points[q] - points[kv], dim=-1) < points[q].norm() + 0.5,
    "members of one group": lambda b, h, q, kv: (member[q] & member[kv]).any(),
    "all in a box": lambda b, h, q, kv: (torch.abs(points[q, :2] - points[kv, :2]) < torch.tensor([1.0, 0.8])).all(-1),
    "coordinates": lambda b, h, q, kv: sum((x - y) * (x - y) for x, y in zip(points[q], points[kv])) < 2,
    "ellipsis": lambda b, h, q, kv: (dense_bias[b, ..., 0, kv].amax() > 0) | (points[..., 1][kv] > points[q, ...][2]),
    "slices of slices": lambda b, h, q, kv: points[2:9:2][1:, 1:][1][0] < points[1:][kv.clamp(max=10), 1:][1],
    "a vector of places": lambda b, h, q, kv: ids[cells[q]].amax() > cells[kv].min(),
    "a larger buffer": lambda b, h, q, kv: kv < offsets[b],
    "a captured vector": lambda b, h, q, kv: (
        ((q >= offsets) & (kv >= offsets)).any() & (kv == torch.tensor([1, 4])).any()
    ),
    "boundaries": lambda b, h, q, kv: (q.unsqueeze(-1) >= offsets).sum(-1) == (kv.unsqueeze(-1) >= offsets).sum(-1),
    "members": lambda b, h, q, kv: torch.isin(kv, offsets) | (kv.unsqueeze(-1) == cells[q]).any(dim=-1),
    "dtypes": lambda b, h, q, kv: allowed[b, kv] if allowed[b, kv].dtype == torch.bool else q < 0,
    "computed before": lambda b, h, q, kv: (slopes * 2 - 1)[h] + torch.exp(-slopes)[h] + slopes[:, None][h, 0] > 1.2,
    "containers": lambda b, h, q, kv, held=({"ids": ids}, [offsets]): (
        (held[0]["ids"][q] == held[0]["ids"][kv]) | (kv < held[1][0][1])
    ),
}


@by_name("rule", MASKS)
def test_a_traced_mask_means_what_it_means_on_tensors(rule):
    """The expression's value equals the callable's own on index tensors, element by element."""
    rule = rule() if rule is from_transformers else rule

    assert np.array_equal(values(as_mask(rule)), [bool(rule(*position)) for position in positions()])


def t5(distance, h):
    far = 4 + (torch.log(distance.float() / 4 + 1e-9) / math.log(16 / 4) * 4).to(torch.int64)
    bucket = torch.where(distance < 4, distance, torch.clamp(far, max=7).long())
    return relative[h, bucket]


def scores(s, b, h, q, kv):
    """Rules by name."""
    return {
        "ALiBi": s - slopes[h] * (q - kv).abs(),
        "softcap": 20 * torch.tanh(s / 20) + (s / 30).tanh(),
        "relative tables": s + relative[h, q - kv + Q - 1] + table_2d[q - kv + (Q - 1)] / 8,
        "counted from the end": s + relative[h, q - kv] + features[h][q - kv - 1, 1] + points[kv - q][:2].sum(-1),
        "dense bias": s + dense_bias[b][0][q][kv] + dense_bias[b, h, q, kv],
        "T5 buckets": s + t5((q - kv).clamp(min=0), h),
        "trigonometry": s + torch.sin(q * 0.1) * torch.cos(0.1 * kv) + torch.tan(s.atan() / 4),
        "exponentials": torch.exp(-s.abs())
        + torch.exp2(h / 3)
        + torch.log1p(s * s)
        + torch.expm1(s / 9)
        + torch.log2(s**2 + 1),
        "roots": torch.sqrt(s.abs() + 1) + torch.rsqrt(s.square() + 1) + (s.abs() + 1).pow(0.3),
        "activations": torch.sigmoid(s) + torch.relu(s) + F.softplus(s) + F.relu(s) + F.softplus(s, beta=2),
        "gelu, silu": torch.erf(s) + F.gelu(s) + F.gelu(s, approximate="tanh") + F.silu(s),
        "rounding": torch.floor(s) + torch.ceil(s) * 2 + torch.round(s) * 3 + torch.trunc(s) * 5 + s.sign(),
        "extremes": torch.maximum(s, torch.minimum(q, kv)) + torch.clamp(s, -1, max=1) - torch.abs(s).clamp(0.5, 2),
        "conversions": s + kv.float() * 0.5 + (q > kv).to(torch.float32) + (q == kv).int() + s.to(torch.int32),
        "dtype": s + q.to(s.dtype) * 0.1,
        "division": s + torch.div(q, kv + 1, rounding_mode="floor") + q / (kv + 1) + (-q) // 5 + (-q) % 5,
        "division toward zero": s + torch.div(q - kv, 3, rounding_mode="trunc"),
        "masked_fill": s.masked_fill(q < kv, -float("inf")) + torch.masked_fill(s, q > kv, 1.0),
        "made numbers": torch.where(q < kv, torch.tensor(-1e9, dtype=s.dtype), s) + torch.zeros((), dtype=s.dtype),
        "not numbers": (s / (q - kv) * 0).nan_to_num(nan=2.0) + q.clamp_min(2) + kv.clamp_max(3) + s.where(q > kv, 1.0),
        "more activations": F.logsigmoid(s) + F.leaky_relu(s) + F.elu(s) + F.hardtanh(s) + F.softsign(s) + F.relu6(s),
        "more functions": torch.lerp(s, s * 2, 0.3) + torch.hypot(s, s + 1) + torch.logaddexp(s, -s) + s.reciprocal(),
        "torch.norm": s + torch.norm(points[q] - points[kv], p=2, dim=-1),
        "remainders": torch.fmod(q - kv, 3) + torch.fmod(s, 0.5),
        "NumPy": np.tanh(s) + np.float64(0.5) * s + np.maximum(q, kv) - np.clip(s, -1, None),
        "scalar tensors": torch.tensor(2.0) * s + s * torch.tensor(3),
        "alpha": torch.sub(torch.add(s, kv, alpha=2), q, alpha=0.5),
        "isfinite": torch.where(torch.isfinite(s / (q - kv)) & ~torch.isnan(s), s, 0.0),
        "isinf": torch.where(torch.isinf(s / (q - kv)), -float("inf"), s),
        "shifts": s + (q >> 2) + (kv << 1) + (kv >> h) + (1 << (q % 9)),
        "dot products": s + (features[h, q] * features[h, kv]).sum(-1) + features[h, q] @ features[0, kv],
        "torch.dot": s + torch.dot(features[h, q], features[h, kv]) + torch.sum(points[q] * points[kv], dim=0),
        "a vector of weights": s + (points[q] * slopes).sum() - (slopes * points[kv]).mean(-1) + points[q] @ slopes,
        "extremes of vectors": s - (points[q] - points[kv]).abs().max() + torch.amin(points[q], -1) + cells[q].prod(),
        "a matrix of a batch": s + dense_bias[b, h][q, kv] + dense_bias[b][h, q][kv],
        "products of matrices": s + (features[:, q] @ features[h, kv]).sum() + features[:, kv].sum((0, 1)),
        "kept axes": s + (points[q] - points[q].mean(-1, keepdim=True)).square().sum(-1).sqrt(),
        "activations of vectors": s + torch.tanh(points[q] + s).sum() + F.gelu(points[kv]).sum(0),
        "unbind": s + points[q].unbind(-1)[1] * points[kv].unbind()[2] + len(points[q]) * points[q].shape[0],
        "a number of a captured array": s * slopes[0].item() + document.max() + len(ids) + document.shape[1],
    }


def test_a_traced_score_means_what_it_means_on_tensors():
    """The expression's value equals the callable's own on float64 logits and index tensors."""
    logits = torch.from_numpy(LOGITS).ravel()
    rows = [scores(logit, *position) for logit, position in zip(logits, positions())]
    for name in rows[0]:
        found = values(as_score(lambda *symbols, name=name: scores(*symbols)[name]))
        np.testing.assert_allclose(found, [float(row[name]) for row in rows], rtol=2e-6, atol=2e-6, err_msg=name)


def test_tracing_reads_like_the_rule():
    """The traced tree is the expression one would have written."""
    assert as_mask(sliding_window) is (query - key < 4) & (query >= key)
    assert as_score(lambda s, b, h, q, kv: 20 * torch.tanh(s / 20)) is 20 * rg.tanh(score / 20)


def test_the_callable_is_not_changed():
    """After tracing, the rule still sees its own arrays and globals."""
    rule = make_prefix(lengths)
    as_mask(rule)

    assert rule.__closure__[0].cell_contents is lengths
    assert isinstance(globals()["ids"], torch.Tensor) and same_document.__globals__ is globals()


def test_integers_are_copied_and_floats_are_read_in_place():
    """Calls with equal integers have the same rule, so they share its plan; a change of the array is another rule.
    Floats may have gradients, and large arrays take longer to copy than to plan.
    """
    places, bias, large = np.arange(K) // 3, np.arange(K) / 3, np.arange(40_000)

    def mask(b, h, q, kv):
        return places[q] == places[kv]

    first = as_mask(mask)
    assert as_mask(mask) is first
    places[0] = 1
    assert as_mask(mask) is not first and as_mask(mask).tables[0].array[0] == 1
    assert as_score(lambda s, b, h, q, kv: s + bias[kv]).tables[0].source is bias
    assert as_mask(lambda b, h, q, kv: large[q] > 0).tables[0].source is large


def test_shared_arrays_become_one_table():
    """Two functions that capture one array read one table."""
    rule = as_mask(lambda b, h, q, kv: same_document(b, h, q, kv) & (ids[kv] > 0))

    assert len(tables_of(rule)) == 1


def test_recursion_ends():
    """A rule that calls itself is traced like any other."""

    def within(b, h, q, kv, steps=3):
        return (q - kv == steps) | within(b, h, q, kv, steps - 1) if steps else q == kv

    assert repr(as_mask(within)) == "(query - key == 3) | ((query - key == 2) | ((query - key == 1) | (query == key)))"


REFUSED = {
    "use & | ~ with parentheses around comparisons": lambda b, h, q, kv: kv <= q and kv > 0,
    "where(condition, a, b) instead of if": lambda b, h, q, kv: (kv <= q) if h == 0 else True,
    "lambda batch, head, query, key: …": lambda b, h, q: q >= 0,
    "a mask must be a condition": lambda b, h, q, kv: q - kv,
    "NoneType": lambda b, h, q, kv: None,
    "expressions have no 'shape'": lambda b, h, q, kv: kv.shape[0] > 3,
    "index captured arrays with table(array)[…]": lambda b, h, q, kv: SimpleNamespace(held=np.arange(9)).held[kv] > 3,
    "fmin cannot be used in an expression": lambda b, h, q, kv: np.fmin(kv, 3) == 0,
    "would overflow": lambda b, h, q, kv: kv.to(torch.uint8) == 0,
    "`>>` needs integers": lambda b, h, q, kv: kv >> (q / 2) > 0,
    "a shift by a negative number": lambda b, h, q, kv: kv >> -1 > 0,
    "a mask is one condition for each pair": lambda b, h, q, kv: cells[q] == cells[kv],
    "write amax: x.amax(-1)": lambda b, h, q, kv: points[q].max(-1).values > 0,
    "vectors do not broadcast": lambda b, h, q, kv: (points[q] > features[h, kv]).any(),
    "sum has no such axis": lambda b, h, q, kv: points[q].sum(1) > 0,
    "256 or fewer": lambda b, h, q, kv: (torch.zeros(3, 2000)[h] > 0).any(),
    "[999, 999]: 998,001 numbers": lambda b, h, q, kv: (kv <= q) | np.zeros((999, 999), bool),
    "a vector is empty": lambda b, h, q, kv: points[q, 3:].sum() > 0,
    "wrong number of indices": lambda b, h, q, kv: points[q, kv, h] > 0,
    "(n,) with (n,)": lambda b, h, q, kv: points[q] @ features[h, kv] > 0,
    "a product of shapes [] and []": lambda b, h, q, kv: q @ kv > 0,
    "a rule over positions is not one number": lambda b, h, q, kv: kv.item() > 3,
    "an array cannot be created inside a rule": lambda b, h, q, kv: kv.new_ones(3),
    "round the quotient: floor(x / y)": lambda b, h, q, kv: torch.div(kv, 2, rounding_mode="up") > 0,
    "not a dtype": lambda b, h, q, kv: kv.to("f4") > 0,
    "ZeroDivisionError while it ran on symbols: division by zero": lambda b, h, q, kv: kv > 1 / 0,
}


test_what_cannot_be_traced_is_refused = refused_in(
    {words: functools.partial(as_mask, rule) for words, rule in REFUSED.items()}
)
