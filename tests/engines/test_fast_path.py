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


MEMORY = {
    "freed": lambda t: t.untyped_storage().resize_(0),
    "freed behind a view": lambda t: t.untyped_storage().resize_(0),
    "made smaller": lambda t: t.untyped_storage().resize_(t.untyped_storage().nbytes() - 4),
}
FUNCTIONS = {
    "attention": lambda *qkv: rg.attention(*qkv),
    "causal": lambda *qkv: rg.attention_with_lse(*qkv, mask=rg.causal())[0],
    "weights": lambda *qkv: rg.attention_weights(*qkv[:2]),
    "statistics": lambda *qkv: rg.attention_stats(*qkv[:2], of=["entropy"])["entropy"],
    "sinks": lambda *qkv: rg.attention(*qkv, sinks=[0.5] * 4),
    "cache": lambda *qkv: _through_cache(*qkv),
}


def _through_cache(q, k, v):
    cache = rg.KVCache(4, 8)
    cache.append(k, v)
    return cache.attend(q)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("what", MEMORY)
@pytest.mark.parametrize("place", range(3))
def test_memory_that_is_gone(place, what, warm, function):
    """A tensor whose storage was freed or made smaller, as FSDP does it, is refused, however often such a call ran."""
    torch = pytest.importorskip("torch")
    if function in ("weights", "statistics") and place == 2:
        pytest.skip("a call without values")

    def tensors():
        whole = [torch.randn(8, 6, 8) for _ in range(3)]
        return [each[4:] if what == "freed behind a view" else each[:4].clone() for each in whole]

    for _ in range(4 if warm else 0):
        FUNCTIONS[function](*tensors())
    given = tensors()
    MEMORY[what](given[place])

    with pytest.raises(rg.Refused, match=r"storage has .* because it was freed or made smaller"):
        FUNCTIONS[function](*given)


@pytest.mark.parametrize("warm", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_tensors_without_memory_of_their_own(warm, grad):
    """Zeros without memory, lazily negated views and expanded views give what their values give."""
    torch = pytest.importorskip("torch")
    shape = 4, 6, 8
    negated = torch.imag(torch.randn(shape, dtype=torch.complex64).conj())
    assert negated.is_neg()
    for odd in (torch._efficientzerotensor(shape), negated, torch.randn(8).expand(shape), torch.randn(shape).mT.mT):
        for place in range(3):
            given = [torch.randn(shape) for _ in range(3)]
            for _ in range(4 if warm else 0):
                rg.attention(*given)
            given[place] = odd
            plain = [each + torch.zeros(shape) for each in given]
            if grad:
                other = (place + 1) % 3
                plain[other].requires_grad_()
                given[other].requires_grad_()
            found, expected = rg.attention(*given), rg.attention(*plain)
            assert torch.equal(found, expected)
            if grad:
                found.sum().backward()
                expected.sum().backward()
                assert torch.equal(given[other].grad, plain[other].grad)


APART = {
    "heads innermost": lambda b: b.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "queries innermost": lambda b: b.transpose(1, 2).contiguous().transpose(1, 2),
    "every second": lambda b: b.repeat_interleave(2, -1)[..., ::2],
    "one entry for all": lambda b: b.transpose(1, 2).contiguous().transpose(1, 2)[None].expand(2, -1, -1, -1),
    "one row for all": lambda b: b[:, :1].repeat_interleave(2, -1)[..., ::2].expand(b.shape),
    "one key for all": lambda b: b[..., :1].expand(b.shape),
}


@pytest.mark.parametrize("change", APART.values(), ids=APART)
def test_a_score_whose_keys_are_apart_in_memory(change):
    """The result and the gradients are, bit by bit, those of the same numbers in rows, for arrays and tensors."""
    random = torch.Generator().manual_seed(2)
    q, k, v = (torch.randn(2, 3, 20, 8, generator=random) for _ in range(3))
    score = change(torch.randn(3, 20, 20, generator=random))
    rows = torch.empty(score.shape).copy_(score)
    for _ in range(2):
        expected = rg.attention(q, k, v, score=rows)
        assert torch.equal(rg.attention(q, k, v, score=score), expected)
        found = rg.attention(q.numpy(), k.numpy(), v.numpy(), score=score.numpy())
        assert np.array_equal(found, expected.numpy())
        slopes = []
        for given in (score, rows):
            leaf = given.detach().requires_grad_()
            slopes.append(torch.autograd.grad(rg.attention(q, k, v, score=leaf).square().sum(), leaf)[0])
        assert torch.equal(*slopes)
