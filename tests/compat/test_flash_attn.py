"""flash_attn's functions against the law of what it documents, in float64, sequence by sequence."""

import inspect
import subprocess
import sys

import numpy as np
import pytest
import torch

import regard as rg
from regard.compat import bert_padding
from regard.compat import flash_attn as fa
from regard.torch import trace
from tests.support.refusals import refused_in, refusing

each_seed = pytest.mark.parametrize("seed", range(12))


def law(q, k, v, options, number):
    """out (Q, H, E) and lse (H, Q) of the sequence with this number, q (Q, H, D), k (K, G, D), in float64."""
    left, right = (None if each < 0 else each for each in options.get("window_size", (-1, -1)))
    mask = rg.window(None if left is None else left + 1, 0 if options.get("causal") else right)
    score = rg.softcap(options["softcap"]) if "softcap" in options else rg.score
    if "alibi_slopes" in options:
        slopes = options["alibi_slopes"].double()
        score = rg.alibi(slopes if slopes.ndim == 1 else slopes[number], score)
    rules = {"mask": mask, "score": score, "scale": options.get("softmax_scale"), "engine": "reference"}
    out, lse = rg.attention_with_lse(*(each.double().transpose(0, 1) for each in (q, k, v)), **rules)
    return out.transpose(0, 1), torch.where(lse == -torch.inf, torch.inf, lse)


def choices(rng, heads, batch):
    """Random rules, as the functions take them."""
    H = heads
    found = {}
    if rng.random() < 0.5:
        found["causal"] = True
    if rng.random() < 0.4:
        found["window_size"] = tuple(int(each) for each in rng.integers(-1, 6, 2))
    if rng.random() < 0.3:
        found["softcap"] = float(rng.uniform(0.5, 4))
    if rng.random() < 0.3:
        found["softmax_scale"] = float(rng.uniform(0.1, 1))
    if rng.random() < 0.4:
        shape = (H,) if rng.random() < 0.5 else (batch, H)
        found["alibi_slopes"] = torch.from_numpy(rng.uniform(0, 1, shape)).float()
    return found


def normal(rng, *shape, dtype=torch.float32):
    return torch.from_numpy(rng.standard_normal(shape)).to(dtype)


def sizes(rng):
    G = int(rng.integers(1, 3))
    return G * int(rng.integers(1, 4)), G, int(rng.integers(1, 20)), int(rng.integers(1, 20))


def close(found, exact, dtype=torch.float32):
    """Equal up to what the dtype rounds; the lse of a row without keys is infinite, and positive as the library's."""
    ours, theirs = found.detach().double().numpy(), exact.detach().double().numpy()
    finite = np.isfinite(theirs)
    assert ours.shape == theirs.shape and (np.isfinite(ours) == finite).all() and (ours[~finite] > 0).all()
    most = 1 + np.abs(theirs[finite]).max(initial=0)
    assert np.abs(ours - theirs)[finite].max(initial=0) <= 64 * torch.finfo(dtype).eps * most


@pytest.mark.spread
@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@each_seed
def test_one_length(seed, dtype):
    """Outputs and lse, of separate and of packed arrays, contiguous as the library returns them."""
    rng = np.random.default_rng(seed)
    H, G, D, E = sizes(rng)
    B, Q, K = (int(each) for each in rng.integers(1, [3, 30, 40]))
    q, k, v = (
        normal(rng, B, Q, H, D, dtype=dtype),
        normal(rng, B, K, G, D, dtype=dtype),
        normal(rng, B, K, G, E, dtype=dtype),
    )
    options = choices(rng, H, B)
    out, lse, none = fa.flash_attn_func(q, k, v, **options, return_attn_probs=True)
    plain = fa.flash_attn_func(q, k, v, **options)
    assert none is None and out.dtype is dtype and lse.dtype is torch.float32
    assert out.is_contiguous() and plain.is_contiguous() and torch.equal(out, plain)
    for number in range(B):
        exact = law(q[number], k[number], v[number], options, number)
        close(out[number], exact[0], dtype)
        close(lse[number], exact[1], dtype)
    kv = torch.stack([k, k], 2)
    assert torch.equal(fa.flash_attn_kvpacked_func(q, kv, **options), fa.flash_attn_func(q, k, k, **options))
    qkv = torch.stack([q, q, q], 2)
    assert torch.equal(fa.flash_attn_qkvpacked_func(qkv, **options), fa.flash_attn_func(q, q, q, **options))


@pytest.mark.one_in(2)
@each_seed
def test_sequences_in_one_axis(seed):
    """Outputs, lse and gradients: sequences of equal and of other lengths in queries and keys, empty ones, rows after
    the last one, pages.
    """
    rng = np.random.default_rng(100 + seed)
    H, G, D, E = sizes(rng)
    B = int(rng.integers(1, 5))
    counts = rng.integers(0, 12, (2, B))
    if seed % 2:
        counts[1] = counts[0]
    starts = [torch.from_numpy(np.concatenate([[0], each.cumsum()])).int() for each in counts]
    after = int(rng.integers(0, 3)) if seed % 3 == 0 else 0
    total, others = (int(each[-1]) + after for each in starts)
    q, k, v = (
        each.requires_grad_()
        for each in (normal(rng, total, H, D), normal(rng, others, G, D), normal(rng, others, G, E))
    )
    options = choices(rng, H, B)
    longest = [int(each.max()) for each in counts]
    out, lse, _ = fa.flash_attn_varlen_func(q, k, v, *starts, *longest, **options, return_attn_probs=True)
    slope = normal(rng, total, H, E)
    found = (
        torch.autograd.grad(fa.flash_attn_varlen_func(q, k, v, *starts, *longest, **options), (q, k, v), slope)
        if total and others
        else ()
    )
    wide = [each.detach().double().requires_grad_() for each in (q, k, v)]
    sums = torch.zeros((), dtype=torch.float64)
    for number in range(B):
        rows, keys = (slice(int(each[number]), int(each[number + 1])) for each in starts)
        exact, exact_lse = law(wide[0][rows], wide[1][keys], wide[2][keys], options, number)
        close(out[rows].detach(), exact.detach())
        close(lse[:, rows].detach(), exact_lse.detach())
        sums = sums + (exact * slope[rows]).sum()
    if after:
        assert not out[-after:].any()
    if found and sums.requires_grad:
        for ours, theirs in zip(found, torch.autograd.grad(sums, wide), strict=True):
            close(ours, theirs)

    page, table = 4, 1 + torch.from_numpy(rng.permutation(3 * B)).reshape(B, 3)  # of up to 12 keys, in any order
    pages = [torch.full((3 * B + 1, page, *each.shape[1:]), torch.nan) for each in (k, v)]
    for first, count, own in zip(starts[1], counts[1], table):
        places = (page * own[:, None] + torch.arange(page)).flatten()[:count]
        for array, packed in zip(pages, (k, v), strict=True):
            array.flatten(0, 1)[places] = packed.detach()[first : first + count]
    paged = fa.flash_attn_varlen_func(q.detach(), *pages, *starts, *longest, **options, block_table=table.int())
    close(paged, out.detach().double())


@pytest.mark.one_in(2)
@each_seed
def test_a_cache(seed):
    """New keys are written at their places, in place, and rows attend to all of their own sequence."""
    rng = np.random.default_rng(200 + seed)
    H, G, D, _ = sizes(rng)
    D += D % 2
    B, Q, S, page = int(rng.integers(1, 4)), int(rng.integers(1, 4)), 16, 4
    before = torch.from_numpy(rng.integers(0, S - 4, B))
    new = Q if seed % 3 else 0
    cache = [normal(rng, B + 1, S, G, D) for _ in range(2)]
    q, k, v = normal(rng, B, Q, H, D), normal(rng, B, new, G, D), normal(rng, B, new, G, D)
    options = choices(rng, H, B)
    appended = {"k": k, "v": v} if new else {}
    width = int(rng.integers(1, D // 2 + 1))
    angles = torch.from_numpy(rng.uniform(0, 6, (S, width)))
    turned = seed % 5 in (2, 3) and new > 0
    rotary = {"rotary_cos": angles.cos(), "rotary_sin": angles.sin(), "rotary_interleaved": seed < 6} if turned else {}

    def rotate(x, at):
        """x (n, heads, D) at the positions (n,)."""
        if not turned:
            return x
        pairs, numbers = rotary["rotary_interleaved"], x[..., : 2 * width].double()
        numbers = numbers.unflatten(-1, (-1, 2)) if pairs else numbers.unflatten(-1, (2, -1)).mT
        found = torch.view_as_complex(numbers.contiguous()) * torch.exp(1j * angles[at])[:, None]
        found = torch.view_as_real(found) if pairs else torch.view_as_real(found).mT
        return torch.cat([found.flatten(-2), x[..., 2 * width :]], -1)

    entries = torch.from_numpy(rng.permutation(B + 1)[:B]) if seed % 3 == 1 else None
    paged = None
    if seed % 4 == 2 and entries is None:
        order = torch.from_numpy(rng.permutation(B * S // page)).reshape(B, -1)
        paged = [torch.zeros(B * S // page, page, G, D) for _ in range(2)]
        for array, whole in zip(paged, cache, strict=True):
            array[order] = whole[:B].reshape(B, -1, page, G, D)
    place = {} if entries is None else {"cache_batch_idx": entries}
    place |= {} if paged is None else {"block_table": order.int()}
    kept = [each.clone() for each in cache]
    given = [each.clone() for each in cache] if paged is None else paged
    out, lse = fa.flash_attn_with_kvcache(
        q, *given, **appended, **rotary, cache_seqlens=before, **place, **options, return_softmax_lse=True
    )
    for number in range(B):
        entry = number if entries is None else int(entries[number])
        first = int(before[number])
        local = options.get("causal") or ("window_size" in options and options["window_size"] != (-1, -1))
        rows = first + (torch.arange(Q) if local else torch.zeros(Q, dtype=torch.int64))
        if new:
            kept[0][entry, first : first + new] = rotate(k[number], first + torch.arange(new)).float()
            kept[1][entry, first : first + new] = v[number]
        whole = [each[entry, : first + new] for each in kept]
        exact = law(rotate(q[number], rows), *whole, options, number)
        close(out[number], exact[0])
        close(lse[number], exact[1])
    now = given if paged is None else [array[order].reshape(B, S, G, D) for array in paged]
    for ours, theirs in zip(now, kept, strict=True):
        torch.testing.assert_close(ours, theirs[: len(ours)], atol=1e-6, rtol=1e-5)


def test_padded_batches():
    """Packed and padded again, with gradients."""
    x = torch.randn(2, 4, 3, requires_grad=True)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 0]])
    rows, indices, starts, longest, used = bert_padding.unpad_input(x, mask)
    assert (starts.tolist(), starts.dtype, longest, used.tolist()) == ([0, 2, 5], torch.int32, 3, [2, 3])
    back = bert_padding.pad_input(rows, indices, 2, 4)
    assert torch.equal(back, x * mask[..., None])
    back.sum().backward()
    assert torch.equal(x.grad, mask[..., None].expand_as(x).float())
    more = bert_padding.unpad_input(x, mask, torch.tensor([[0, 0, 1, 0], [0, 0, 0, 0]]))
    assert more[2].tolist() == [0, 3, 6] and more[4].tolist() == [2, 3]


def test_dropout_is_repeated_by_its_seed():
    """manual_seed repeats a call; the pattern of the library cannot be returned."""
    q, v = torch.zeros(1, 64, 1, 8), torch.eye(64)[None, :, None]
    torch.manual_seed(1)
    first = fa.flash_attn_func(q, q, v, dropout_p=0.5)
    torch.manual_seed(1)
    assert torch.equal(first, fa.flash_attn_func(q, q, v, 0.5)) and (first == 0).any()
    assert len({fa.flash_attn_func(q, q, v, 0.5).numpy().tobytes() for _ in range(40)}) == 40, "of many seeds"
    with refusing("return_attn_probs with dropout"):
        fa.flash_attn_func(q, q, v, 0.5, return_attn_probs=True)


q, s = torch.zeros(1, 4, 2, 8), torch.tensor([0, 2, 4])
test_what_does_not_fit_is_refused = refused_in(
    {
        "q has other axes": lambda: fa.flash_attn_func(q[0], q, q),
        "packed array has other axes": lambda: fa.flash_attn_kvpacked_func(q, q),
        "qkvpacked_func: .*packed array has other axes": lambda: fa.flash_attn_varlen_qkvpacked_func(q, s, 3),
        "cu_seqlens_q is not ascending": lambda: fa.flash_attn_varlen_func(q[0], q[0], q[0], s.flip(0), s, 3, 3),
        "differ in length": lambda: fa.flash_attn_varlen_func(q[0], q[0], q[0], s[:2], s, 3, 3),
        "one of k and v": lambda: fa.flash_attn_with_kvcache(q, q, q, q, cache_seqlens=0),
        "one of rotary_cos and": lambda: fa.flash_attn_with_kvcache(q, q, q, rotary_cos=q[0, :, 0]),
        "the cache is too short": lambda: fa.flash_attn_with_kvcache(q, q, q, q, q, cache_seqlens=1),
        "two ways to find": lambda: fa.flash_attn_with_kvcache(q, q, q, block_table=s[None], cache_leftpad=s),
    }
)


REST = (
    "dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None, "
    "deterministic=False, return_attn_probs=False"
)
SIGNATURES = {
    "flash_attn_func": f"(q, k, v, {REST})",
    "flash_attn_varlen_func": f"(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, {REST}, "
    "block_table=None)",
    "flash_attn_with_kvcache": "(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, "
    "cache_seqlens=None, cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None, causal=False, "
    "window_size=(-1, -1), softcap=0.0, rotary_interleaved=True, alibi_slopes=None, num_splits=0, "
    "return_softmax_lse=False)",
    "apply_rotary_emb": "(x, cos, sin, interleaved=False, inplace=False, seqlen_offsets=0, cu_seqlens=None, "
    "max_seqlen=None)",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_signatures(name):
    """Names, order and defaults are those of flash-attn 2.8; the packed functions pass the rest on by position."""
    found = inspect.signature(getattr(fa, name))
    plain = [each.replace(annotation=each.empty) for each in found.parameters.values()]
    assert str(inspect.Signature(plain)) == SIGNATURES[name]


@pytest.mark.parametrize("interleaved", [False, True])
def test_rotary_positions(interleaved):
    """The same numbers for a batch, for packed sequences and in place: products of complex numbers."""
    rng, starts, first = np.random.default_rng(0), torch.tensor([0, 3, 8]), torch.tensor([2, 0])
    packed, angles = normal(rng, 8, 2, 10), normal(rng, 9, 3)
    own = [fa.apply_rotary_emb(x[None], angles.cos(), angles.sin(), interleaved, seqlen_offsets=int(begin))[0]
           for x, begin in zip(packed.split([3, 5]), first, strict=True)]  # fmt: skip
    parts = packed[..., :6].unflatten(-1, (3, 2)) if interleaved else packed[..., :6].unflatten(-1, (2, 3)).mT
    places = torch.tensor([2, 3, 4, 0, 1, 2, 3, 4])
    turned = torch.view_as_real(torch.view_as_complex(parts.contiguous()) * torch.exp(1j * angles[places, None]))
    exact = torch.cat([(turned if interleaved else turned.mT).flatten(-2), packed[..., 6:]], -1)
    torch.testing.assert_close(torch.cat(own), exact)
    found = fa.apply_rotary_emb(packed, angles.cos(), angles.sin(), interleaved, True, first, starts, 5)
    assert found is packed and torch.equal(packed, torch.cat(own))


PROGRAM = """
import importlib.metadata, sys
import regard.compat
{before}
regard.compat.install("flash_attn")
regard.compat.install()
import torch
from flash_attn import flash_attn_func, __version__
from flash_attn.flash_attn_interface import flash_attn_varlen_func
from flash_attn.bert_padding import pad_input, unpad_input
from flash_attn.layers.rotary import apply_rotary_emb
import flash_attn.bert_padding as padding
q = torch.zeros(1, 3, 2, 8)
print(flash_attn_func(q, q, q, causal=True).shape, padding.pad_input is pad_input)
"""


@pytest.mark.parametrize("real", [False, True])
def test_install(real, tmp_path):
    """Where flash_attn is not installed, programs import regard's functions; a real one is never replaced."""
    if real:
        (tmp_path / "flash_attn.py").write_text("")
    program = PROGRAM.format(before=f"sys.path.insert(0, {str(tmp_path)!r})")
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if real:
        assert "flash_attn is installed" in ended.stderr and ended.returncode == 1
    else:
        assert ended.stdout.strip() == "torch.Size([1, 3, 2, 8]) True", ended.stderr


def test_a_trace_sees_the_call():
    """What a model computes through this module is seen as a call of regard."""
    q = torch.zeros(1, 3, 2, 8)
    assert [call.kind for call in trace(fa.flash_attn_func, (q, q, q)).calls] == ["regard.attention"]
