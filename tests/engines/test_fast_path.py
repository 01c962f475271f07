"""The fast path: a call like an earlier one gives the same result, and every relevant difference is detected."""

import numpy as np
import pytest
import torch

import regard as rg
from regard.common.caching import Memo
from regard.engines import fast_path
from regard.engines.jit import threads
from regard.engines.jit.code.target import limited
from regard.language.checks.arguments import Arguments
from tests.support import direct_calls
from tests.support.lanes import by_name
from tests.support.refusals import refusing

RULES = direct_calls.RULES | {
    "another start": {"scale": 0.3, "query_start": 1},
    "frozen tables": {"mask": rg.documents([0, 0, 1, 1, 1, 2, 2, 2, 2]), "score": rg.alibi(4)},
}


class Own(np.ndarray):
    """A user's subclass of ndarray."""


def arrays(seed, lead=(2,)):
    random = np.random.default_rng(seed)
    return [random.standard_normal((*lead, *size, 8)).astype(np.float32) for size in ((4, 7), (2, 9), (2, 9))]


@by_name("given", RULES)
@pytest.mark.parametrize("lead", [(2,), (3, 2), ()], ids=str)
def test_the_fast_path_gives_what_the_full_path_gives(given, lead):
    """The second call of a kind, on other values with the same strides, is bit-identical to a direct call of the
    engine, which a seed is.
    """
    for seed in (1, 2, 3):
        qkv = arrays(seed, lead)
        tensors = rg.attention_with_lse(*map(torch.from_numpy, qkv), **given)
        direct = rg.attention_with_lse(*[part.copy() for part in qkv], **given, seed=0)
        for found, twin, tensor in zip(rg.attention_with_lse(*qkv, **given), direct, tensors, strict=True):
            assert np.array_equal(found, twin) and np.array_equal(found, tensor)


def test_a_table_that_changes_is_seen():
    """An array that a rule reads may change between calls of one kind."""
    q, k, v = arrays(0)
    bias = np.zeros((7, 9), np.float32)
    for number in (0, 50):
        bias[:, 0] = number
        copied = rg.attention(q, k, v, score=rg.bias(bias.copy()))
        assert np.array_equal(rg.attention(q, k, v, score=rg.bias(bias)), copied)


def test_what_takes_the_full_path():
    """Lazily negated tensors, subclasses of arrays, tensors among arrays, and rules that are callables do."""
    a, b, c = arrays(0)
    q, k, v = map(torch.from_numpy, (a, b, c))
    turned = torch.complex(torch.zeros_like(k), -k).conj().imag  # -(-k), stored with the opposite sign
    assert turned.is_neg() and torch.equal(turned, k)
    for fast, *given, mask in (
        (True, q, k, v, None),
        (True, q, k, v, rg.causal()),
        (False, q, turned, v, None),
        (False, a.view(Own), b, c, None),
        (False, q, b, v, None),
        (False, q, k, v, lambda b, h, i, j: j <= i),
    ):
        assert (fast_path.attend(*given, Arguments(mask), "auto") is not None) == fast


def test_a_copy_is_never_mistaken_for_the_array():
    """Batch axes that cannot be flattened in place are copied by the checks, in every call."""
    wide = np.random.default_rng(0).standard_normal((2, 3, 4, 7, 16), np.float32)
    for number in (1.0, 2.0):
        q = (number * wide).swapaxes(0, 1)[..., ::2]
        assert np.array_equal(rg.attention(q, q, q), rg.attention(*[np.ascontiguousarray(q)] * 3))


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


MEMORY = {"freed": (4, 0), "freed behind a view": (8, 0), "made smaller": (4, 4 * 6 * 8 * 4 - 4)}  # entries, bytes kept


def through_cache(q, k, v):
    cache = rg.KVCache(4, 8)
    cache.append(k, v)
    return cache.attend(q)


FUNCTIONS = {
    "attention": rg.attention,
    "causal": lambda q, k, v: rg.attention_with_lse(q, k, v, mask=rg.causal()),
    "weights": lambda q, k, v: (rg.attention_weights(q, k), rg.attention_weights(k, v)),
    "statistics": lambda q, k, v: (rg.attention_stats(q, k, of="entropy"), rg.attention_stats(k, v, of="entropy")),
    "sinks": lambda q, k, v: rg.attention(q, k, v, sinks=[0.5] * 4),
    "cache": through_cache,
}


@by_name("function", FUNCTIONS)
@by_name("entries, kept", MEMORY)
def test_memory_that_is_gone(entries, kept, function):
    """A tensor whose storage was freed or made smaller, as FSDP does it, is refused, however often such a call ran."""

    def tensors():
        return [torch.randn(entries, 6, 8)[-4:] for _ in range(3)]

    for place in (0, 1, 2) * 2:
        given = tensors()
        given[place].untyped_storage().resize_(kept)
        with refusing("storage has .* because it was freed or made smaller"):
            function(*given)
        function(*tensors())


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize(
    "odd",
    [
        torch._efficientzerotensor((4, 6, 8)),
        torch.imag(torch.randn(4, 6, 8, dtype=torch.complex64).conj()),  # lazily negated
        torch.randn(8).expand(4, 6, 8),
    ],
)
def test_tensors_without_memory_of_their_own(odd, place):
    """Zeros without memory, lazily negated views and expanded views give what their values give, before and after calls
    of plain tensors; so do gradients of the others.
    """
    for _ in range(3):
        given = [torch.randn(4, 6, 8) for _ in range(3)]
        given[place] = odd
        plain, other = [each + torch.zeros(odd.shape) for each in given], (place + 1) % 3
        assert torch.equal(rg.attention(*given), rg.attention(*plain))
        slopes = []
        for each in (given, plain):
            each[other].requires_grad_()
            slopes += torch.autograd.grad(rg.attention(*each).sum(), each[other])
        assert torch.equal(*slopes)


APART = {
    "heads innermost": lambda b: b.permute(1, 2, 0).contiguous().permute(2, 0, 1),
    "every second": lambda b: b.repeat_interleave(2, -1)[..., ::2],
    "one entry for all": lambda b: b.transpose(1, 2).contiguous().transpose(1, 2)[None].expand(2, -1, -1, -1),
    "one key for all": lambda b: b[..., :1].expand(b.shape),
}


@by_name("change", APART)
def test_a_score_whose_keys_are_apart_in_memory(change):
    """The result and the gradients are, bit by bit, those of the same numbers in rows, for arrays and tensors."""
    q, k, v = torch.randn(3, 2, 3, 20, 8)
    scores, found = change(torch.randn(3, 20, 20)), []
    for score in [scores, scores.contiguous()] * 2:
        leaf = score.detach().requires_grad_()
        slope = torch.autograd.grad(rg.attention(q, k, v, score=leaf).square().sum(), leaf)[0]
        array = rg.attention(q.numpy(), k.numpy(), v.numpy(), score=score.numpy())
        found.append((rg.attention(q, k, v, score=score), torch.from_numpy(array), slope))
    for each in found[1:]:
        assert all(map(torch.equal, each, found[0]))
