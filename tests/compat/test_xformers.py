"""memory_efficient_attention and its biases against dense masks that are written out from their definitions."""

from itertools import pairwise

import numpy as np
import pytest
import torch

import regard.compat
from regard.compat import xformers as xops
from tests.support.kernels import fresh
from tests.support.lanes import by_name
from tests.support.refusals import refusing
from tests.support.tensors import normal


def plain(q, k, v, hidden=None, added=None, scale=None):
    """(B, M, H, K) … -> (B, M, H, E) in float64; hidden: (M, N), true where a row may not attend."""
    q, k, v = (each.double().transpose(1, 2) for each in (q, k, v))
    scores = q @ k.transpose(2, 3) * (q.shape[-1] ** -0.5 if scale is None else scale)
    scores = scores if added is None else scores + added.double()
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2)


def close(found, exact):
    np.testing.assert_allclose(found.detach().double(), exact.detach(), rtol=1e-4, atol=1e-5)


def away(rows, keys, last):
    """Key minus the place of the row, (M, N)."""
    return torch.arange(keys) - torch.arange(rows)[:, None] - (keys - rows if last else 0)


ONE = {
    "causal": (xops.LowerTriangularMask(), lambda M, N: away(M, N, False) > 0),
    "causal from the end": (xops.LowerTriangularFromBottomRightMask(), lambda M, N: away(M, N, True) > 0),
    "causal in a window": (
        xops.LowerTriangularFromBottomRightMask().make_local_attention(3),
        lambda M, N: (away(M, N, True) > 0) | (away(M, N, True) <= -3),
    ),
    "a window": (
        xops.LocalAttentionFromBottomRightMask(window_left=2, window_right=1),
        lambda M, N: (away(M, N, True) > 1) | (away(M, N, True) < -2),
    ),
}


@pytest.mark.spread
@pytest.mark.parametrize(("rows", "keys"), [(7, 7), (4, 9), (9, 4)])
@by_name("bias, hidden", ONE)
def test_biases_of_one_sequence(bias, hidden, rows, keys):
    """The output, and the bias as an array."""
    q, k, v = normal(2, rows, 3, 8), normal(2, keys, 3, 8, seed=1), normal(2, keys, 3, 5, seed=2)
    close(xops.memory_efficient_attention(q, k, v, attn_bias=bias), plain(q, k, v, hidden(rows, keys)))
    shown = bias.materialize((2, rows, keys), dtype=torch.bfloat16)
    assert shown.dtype is torch.bfloat16 and shown.shape == (2, rows, keys)
    assert torch.equal(shown[1] == -torch.inf, hidden(rows, keys)) and not shown[shown != -torch.inf].any()


def test_arrays_that_are_added():
    """Alone and with a causal mask, learned, in both forms of one head."""
    q = normal(2, 6, 3, 8)
    bias = normal(2, 3, 6, 6, seed=4).requires_grad_()
    wide = bias.detach().double().requires_grad_()
    hidden = away(6, 6, False) > 0
    for given, exact in (
        (bias, plain(q, q, q, added=wide)),
        (xops.LowerTriangularMask().add_bias(bias), plain(q, q, q, hidden, wide)),
    ):
        out = xops.memory_efficient_attention(q, q, q, attn_bias=given)
        close(out, exact)
        close(torch.autograd.grad(out.sin().sum(), bias)[0], torch.autograd.grad(exact.sin().sum(), wide)[0])
    one = normal(2, 6, 8)
    for given in (bias[:, 0].detach(), bias[:, :1].detach()):
        exact = plain(*[one[:, :, None]] * 3, added=bias[:, :1].detach())[:, :, 0]
        close(xops.memory_efficient_attention(one, one, one, attn_bias=given), exact)


def test_other_forms():
    """Groups of heads, the scale, the dtype of the output, and dropout that a seed repeats."""
    q, k = normal(2, 6, 2, 3, 8), normal(2, 9, 2, 1, 8, seed=1).expand(2, 9, 2, 3, 8)
    for v in (k.cumsum(3), k):  # a head of values for each head, and one for each group
        out = xops.memory_efficient_attention(q, k, v, scale=0.3, output_dtype=torch.float64)
        assert out.dtype is torch.float64
        close(out, plain(*(each.flatten(2, 3) for each in (q, k, v)), scale=0.3).reshape(q.shape))
    torch.manual_seed(0)
    first = xops.memory_efficient_attention(q, k, k, p=0.5)
    torch.manual_seed(0)
    assert torch.equal(first, xops.memory_efficient_attention(q, k, k, None, 0.5)) and not torch.equal(
        first, out.float()
    )
    with refusing("other axes"):
        xops.memory_efficient_attention(q, q[0], q)


def test_log_sum_exps():
    """Without gradients, in the library's form for groups of heads too."""
    q = normal(2, 6, 2, 3, 8).requires_grad_()
    k = normal(2, 9, 2, 1, 8, seed=1).expand(2, 9, 2, 3, 8)
    out, lse = xops.memory_efficient_attention_forward_requires_grad(q, k, k)
    assert torch.equal(out, xops.memory_efficient_attention_forward(q, k, k)) and not out.requires_grad
    close(out, xops.memory_efficient_attention(q, k, k))
    close(lse, (torch.einsum("bmghd,bnghd->bghmn", q.double(), k.double()) * 8**-0.5).logsumexp(-1))
    one = xops.memory_efficient_attention_forward_requires_grad(q[:, :, 0], k[:, :, 0], k[:, :, 0])[1]
    close(one, lse[:, 0])


PACKED = {
    "all": (lambda bias: bias, False, None, None),
    "causal": (lambda bias: bias.make_causal(), False, None, 0),
    "causal from the end": (lambda bias: bias.make_causal_from_bottomright(), True, None, 0),
    "a window": (lambda bias: bias.make_local_attention(2), False, 1, 0),
    "a window from the end": (lambda bias: bias.make_local_attention_from_bottomright(2), True, 1, 0),
}


def of_blocks(rows, keys, last, left, right, used=None):
    """Which pairs of packed sequences are hidden; used: keys of each sequence, where padding follows them."""
    hidden = torch.ones(rows[-1], keys[-1], dtype=torch.bool)
    for number, ((a, b), (c, d)) in enumerate(zip(pairwise(rows), pairwise(keys), strict=True)):
        d = d if used is None else c + used[number]
        distance = away(b - a, d - c, last)
        hidden[a:b, c:d] = False if right is None else distance > right
        if left is not None:
            hidden[a:b, c:d] |= distance < -left
    return hidden


@pytest.mark.spread
@pytest.mark.parametrize("equal", [True, False])
@by_name("make, last, left, right", PACKED)
def test_packed_sequences(make, last, left, right, equal):
    """Output and gradients, and the parts as they were."""
    lengths = [3, 1, 6], [3, 1, 6] if equal else [5, 4, 8]
    arrays = [
        [normal(1, size, 2, 8, seed=seed + size) for size in some]
        for seed, some in zip((0, 20, 40), (*lengths, lengths[1]))
    ]
    bias, q, k, v = xops.BlockDiagonalMask.from_tensor_lists_qkv(*arrays)
    bias = make(bias)
    hidden = of_blocks(*(np.cumsum([0, *some]).tolist() for some in lengths), last, left, right)
    given = [each.requires_grad_() for each in (q, k, v)]
    out, exact = xops.memory_efficient_attention(*given, attn_bias=bias), plain(*given, hidden)
    close(out, exact)
    for ours, theirs in zip(*(torch.autograd.grad(each.sin().sum(), given) for each in (out, exact)), strict=True):
        close(ours, theirs)
    assert torch.equal(bias.materialize(hidden.shape) == -torch.inf, hidden)
    parts = bias.split_queries(out)
    assert [each.shape[1] for each in parts] == lengths[0] and torch.equal(torch.cat(list(parts), 1), out)
    assert [each.shape[1] for each in bias.split_kv(k)] == lengths[1]


def test_several_of_one_length():
    """Arrays with several batch entries come back as they were."""
    some = [normal(2, 3, 1, 8), normal(1, 5, 1, 8)]
    bias, x = xops.BlockDiagonalMask.from_tensor_list(some)
    assert all(torch.equal(*pair) for pair in zip(bias.split(x), some, strict=True))
    with refusing("sequences of other lengths"):
        xops.memory_efficient_attention(x[:, 1:], x, x, attn_bias=bias)
    with refusing("an array of other sequences"):
        bias.split(x[:, 1:])
    with refusing("rows without keys"):
        xops.BlockDiagonalMask.from_seqlens([1, 3], [1, 2]).make_causal_from_bottomright()
    with refusing("a window without keys"):
        xops.LocalAttentionFromBottomRightMask(window_left=1, window_right=-1)


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_in_a_padded_cache(causal):
    """Keys after the used ones are not read, whatever they are."""
    rows, used, room = [1, 2, 1], [4, 6, 1], 6
    kind = xops.BlockDiagonalCausalWithOffsetPaddedKeysMask if causal else xops.BlockDiagonalPaddedKeysMask
    bias = kind.from_seqlens(q_seqlen=rows, kv_padding=room, kv_seqlen=used, device="cpu").to("cpu")
    assert [*bias.q_seqinfo.intervals(), *bias.k_seqinfo.intervals()][2:5] == [(3, 4), (0, 4), (6, 12)]
    starts = [0, 1, 3, 4], [0, 6, 12, 18]
    hidden = of_blocks(*starts, causal, None, 0 if causal else None, used)
    q, k = normal(1, 4, 2, 8), normal(1, 18, 2, 8, seed=1)
    exact = plain(q, k, k, hidden)
    from_start = plain(q, k, k, of_blocks(*starts, False, None, 0, used))
    k[:, 4:6] = torch.nan
    close(xops.memory_efficient_attention(q, k, k, attn_bias=bias), exact)
    close(xops.memory_efficient_attention(q, k, k, attn_bias=bias.make_causal()), from_start)
    with refusing("longer than its room"):
        kind.from_seqlens(q_seqlen=rows, kv_padding=3, kv_seqlen=used)


def test_windows_in_a_padded_cache():
    """With the last row of a sequence at the last key that it uses, under either signature."""
    sizes, starts = ([1, 2, 3], 6, [4, 6, 2]), ([0, 1, 3, 6], [0, 6, 12, 18])
    for bias, left, right in (
        (xops.BlockDiagonalCausalLocalAttentionPaddedKeysMask.from_seqlens_local(*sizes, window_size=3), 2, 0),
        (xops.BlockDiagonalLocalAttentionPaddedKeysMask.from_seqlens_local(*sizes, 1, 2), 1, 2),
    ):
        hidden = of_blocks(*starts, True, left, right, sizes[2])
        assert torch.equal(bias.materialize(hidden.shape) == -torch.inf, hidden)


@pytest.mark.parametrize("causal", ["", "CausalWithOffset"])
def test_keys_with_gaps_and_in_pages(causal):
    """Keys between sequences are not read; in pages they are found by the table, whatever else the pages hold."""
    rows, used, room = [2, 1, 3], [4, 3, 2], 6
    pages = torch.randperm(10, generator=torch.Generator().manual_seed(0))[:9].view(3, 3)
    lie = (2 * pages[..., None] + torch.arange(2)).flatten()  # where key j of sequence b is: at 6 b + j
    for firsts, kind, given in (
        ([1, 0, 2], f"PagedBlockDiagonal{causal}GappyKeysMask", ([1, 0, 2], used)),
        ([0, 0, 0], f"PagedBlockDiagonal{causal}PaddedKeysMask", (used,)),
    ):
        bias = getattr(xops, kind).from_seqlens(rows, *given, pages, 2)
        starts = [room * number + first for number, first in enumerate(firsts)] + [3 * room]
        gappy = getattr(xops, f"BlockDiagonal{causal}GappyKeysMask").from_seqlens(rows, starts, used)
        hidden = of_blocks([0, 2, 3, 6], starts, True, None, 0 if causal else None, used)
        q, k = normal(1, 6, 2, 8), normal(1, 20, 2, 8, seed=1).requires_grad_()
        out, near = (
            xops.memory_efficient_attention(q, keys, keys, attn_bias=each)
            for keys, each in ((k, bias), (k[:, lie], gappy))
        )
        exact = plain(q, k[:, lie], k[:, lie], hidden)
        close(out, exact)
        close(near, exact)
        close(*(torch.autograd.grad(each.sin().sum(), k, retain_graph=True)[0] for each in (out, exact)))
        assert torch.equal(bias.materialize((6, 18))[:, lie] == -torch.inf, hidden)
        assert torch.equal(gappy.materialize((6, 18)) == -torch.inf, hidden)
    with refusing("pages for other sequences"):
        xops.PagedBlockDiagonalPaddedKeysMask.from_seqlens(rows, [4, 7, 2], pages, 2)


def test_install_names_what_is_there():
    """Another name, and libraries that are installed."""
    with refusing("no such library"):
        regard.compat.install("flash_atn")
    program = """
import sys, types
sys.modules["flash_attn"] = types.ModuleType("flash_attn")
import regard, regard.compat
try:
    regard.compat.install()
except regard.Refused as refused:
    print("xformers" in sys.modules, refused)
regard.compat.install("xformers")
import xformers.ops as xops
from xformers.ops import LowerTriangularMask, fmha, memory_efficient_attention, unbind
from xformers.ops.fmha.attn_bias import BlockDiagonalMask
print(fmha.BlockDiagonalMask is BlockDiagonalMask, fmha.attn_bias.AttentionBias is xops.AttentionBias)
"""
    shown = fresh(program)
    assert shown.startswith("False install: flash_attn is installed") and shown.endswith("True True")
