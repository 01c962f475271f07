"""The fast path: a call like an earlier one gives the same result, and every relevant difference is detected."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.common.caching import Memo
from regard.engines import fast_path
from regard.engines.jit.code.target import limited
from regard.engines.jit.run import threads
from regard.engines.reference import attention as reference
from regard.language.checks.arguments import Arguments
from regard.language.problem import Problem

RULES = {
    "nothing": {},
    "rules": {"mask": rg.causal() & rg.window(5), "score": rg.softcap(3.0)},
    "numbers": {"mask": rg.causal(), "scale": 0.5, "query_start": 2},
    "frozen tables": {"mask": rg.documents([0, 0, 1, 1, 1, 2, 2, 2, 2]), "score": rg.alibi(4)},
}


class Own(np.ndarray):
    """A user's subclass of ndarray."""


def arrays(seed, lead=(2,)):
    random = np.random.default_rng(seed)
    return [
        random.standard_normal((*lead, heads, rows, 8)).astype(np.float32) for heads, rows in ((4, 7), (2, 9), (2, 9))
    ]


@pytest.mark.parametrize("given", RULES.values(), ids=RULES)
@pytest.mark.parametrize("lead", [(2,), (3, 2), ()], ids=str)
def test_the_fast_path_gives_what_the_full_path_gives(given, lead):
    """The second call of a kind, on other values with the same strides, is bit-identical to a direct call of the
    engine.
    """
    for seed in (1, 2, 3):
        q, k, v = arrays(seed, lead)
        out, lse = rg.attention_with_lse(q, k, v, **given)
        direct = rg.attention_with_lse(
            q.copy(), k.copy(), v.copy(), **given, dropout=0.0, seed=0
        )  # a seed disables the fast path
        tensors = rg.attention_with_lse(*map(torch.from_numpy, (q, k, v)), **given)

        for found, twin, tensor in zip((out, lse), direct, tensors):
            assert np.array_equal(found, twin) and np.array_equal(found, tensor.numpy())
        exact = reference.forward(Problem.of(q, k, v, **given))[0].reshape(out.shape)
        assert np.abs(out - exact).max() < 2e-6


def test_a_table_that_changes_is_seen():
    """An array that a rule reads may change between calls of one kind."""
    q, k, v = arrays(0)
    bias = np.zeros((7, 9), np.float32)
    before = rg.attention(q, k, v, score=rg.bias(bias))
    bias[:, 0] = 50
    after = rg.attention(q, k, v, score=rg.bias(bias))

    assert np.allclose(before, rg.attention(q, k, v), atol=1e-6)
    assert np.allclose(after, v[:, [0, 0, 1, 1], :1], atol=1e-5)


def test_what_a_kind_is():
    """Other shapes, strides, dtypes, numbers and rules are other kinds: each gives its own result."""
    q, k, v = arrays(0)
    turned = np.ascontiguousarray(k.swapaxes(1, 2)).swapaxes(1, 2)
    plain = rg.attention(q, k, v)

    assert turned.strides != k.strides and np.array_equal(rg.attention(q, turned, v), plain)
    assert not np.array_equal(rg.attention(q, k, v, scale=0.1), plain)
    assert not np.array_equal(rg.attention(q, k, v, mask=rg.causal()), plain)
    assert not np.array_equal(
        rg.attention(q, k, v, mask=rg.causal(), query_start=0), rg.attention(q, k, v, mask=rg.causal(), query_start=1)
    )
    assert rg.attention(*(part.astype(np.float64) for part in (q, k, v))).dtype == np.float64
    assert np.array_equal(rg.attention(q[:1], k[:1], v[:1]), plain[:1])


def test_what_takes_the_full_path():
    """Lazily negated tensors, subclasses of arrays, and rules that are callables never take the fast path."""
    q, k, v = map(torch.from_numpy, arrays(0))
    turned = torch.complex(torch.zeros_like(k), -k).conj().imag  # -(-k), stored with the opposite sign
    short = [(q, k, v, None), (q, k, v, rg.causal())]
    long = [
        (q, turned, v, None),
        (q.numpy().view(Own), k.numpy(), v.numpy(), None),
        (q, k, v, lambda b, h, i, j: j <= i),
        (q, k.numpy(), v, None),
    ]

    assert turned.is_neg() and torch.equal(turned, k)
    for a, b, c, mask in short:
        assert fast_path.attend(a, b, c, Arguments(mask), "auto") is not None
    for a, b, c, mask in long:
        assert fast_path.attend(a, b, c, Arguments(mask), "auto") is None


def test_a_copy_is_never_mistaken_for_the_array():
    """Batch axes that cannot be flattened in place are copied by the checks, in every call."""
    wide = np.random.default_rng(0).standard_normal((2, 3, 4, 7, 16), np.float32)
    for number in (1.0, 2.0):
        q = (number * wide).swapaxes(0, 1)[..., ::2]
        assert np.array_equal(rg.attention(q, q, q), rg.attention(*[np.ascontiguousarray(q)] * 3))


def test_refused_again():
    """An invalid call raises each time, also if it compares equal to a valid one in Python."""
    q, k, v = arrays(0)
    rg.attention(q, k, v, query_start=2)
    for _ in range(2):
        with pytest.raises(rg.Refused, match="query_start is not a position"):
            rg.attention(q, k, v, query_start=2.0)
        with pytest.raises(rg.Refused, match="k and v differ in rows"):
            rg.attention(q, k[:, :, 1:], v)


def test_another_machine_is_another_kind(monkeypatch):
    """A call that is limited to narrower vectors, or to one thread, does not use a recipe from before the limit."""
    monkeypatch.setattr(fast_path, "_kinds", Memo(64))  # an empty one: that of other tests may be full
    q, k, v = arrays(0)

    def ways():
        rg.attention(q, k, v)
        return len(fast_path._kinds.results)

    before = ways()
    assert ways() == before
    with threads.limit(1 if threads.count() > 1 else 2):
        assert ways() == before + 1
    with limited("portable"):
        assert ways() == before + 2
