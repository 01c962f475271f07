"""The functions of `flash_attn` with regard's kernels: on the CPU, where the library itself does not run.

Signatures, defaults, layouts and alignment are those of flash-attn 2: arrays are (batch, rows, heads, depth), the last
row is aligned with the last key, and a row without keys gives 0, with lse +inf.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from ..common.errors import Reason, Refused, refuse
from ..language.checks.arguments import Arguments
from ..language.expr import Expr, batch, head, key, query, table
from ..language.expr import score as the_score
from ..language.masks import lengths
from ..language.scores import softcap as capped
from ..torch.functional import attention_rows_first, attention_with_lse
from .bert_padding import index_first_axis, index_put_first_axis, pad_input, unpad_input
from .sequences import band, sequences

__all__ = [
    "apply_rotary_emb",
    "flash_attn_func",
    "flash_attn_kvpacked_func",
    "flash_attn_qkvpacked_func",
    "flash_attn_varlen_func",
    "flash_attn_varlen_kvpacked_func",
    "flash_attn_varlen_qkvpacked_func",
    "flash_attn_with_kvcache",
    "index_first_axis",
    "index_put_first_axis",
    "pad_input",
    "unpad_input",
]

__version__ = "2.8.3"  # whose functions these are
Window = tuple[int, int]


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """Attention of a batch of sequences of one length.

    out = softmax(cap(softmax_scale · q kᵀ) − slope · |i + K − Q − j|) v

    Args:
        q: (B, Q, H, D).
        k: (B, K, G, D); H is a multiple of G.
        v: (B, K, G, E).
        dropout_p: the rate at which weights are dropped, by a seed of torch's generator.
        softmax_scale: the factor of q·k; None means 1/√D.
        causal: whether row i attends to keys up to i + K − Q.
        window_size: (left, right): how many keys before and after i + K − Q; −1 for no limit.
        softcap: c, caps scores by c · tanh(s / c); 0 for none.
        alibi_slopes: (H,) or (B, H).
        deterministic: has no effect: every call is.
        return_attn_probs: whether lse is returned, too; without dropout.

    Returns:
        out (B, Q, H, E), or (out, lse (B, H, Q), None).

    Raises:
        Refused: shapes or dtypes that do not fit, and `return_attn_probs` with dropout, which would be the pattern of
            the library's own random numbers.

    Source:
        Dao 2023 (FlashAttention-2).

    Examples:
        >>> q = torch.zeros(1, 3, 2, 8)
        >>> flash_attn_func(q, q, q, causal=True).shape
        torch.Size([1, 3, 2, 8])
    """
    _raise("flash_attn_func", _sizes(q=(q, 4), k=(k, 4), v=(v, 4)))
    rules = _rules(query, causal, window_size, softcap, _slope(alibi_slopes))
    arguments = Arguments(*rules, softmax_scale)
    return _attend(q, k, v, arguments, dropout_p, return_attn_probs, "flash_attn_func")


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """`flash_attn_func` of keys and values in one array.

    out = flash_attn_func(q, kv[:, :, 0], kv[:, :, 1], …)

    Args:
        q: (B, Q, H, D).
        kv: (B, K, 2, G, D).
        rest: dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs, as
            for `flash_attn_func`.
        options: the same by name.

    Returns:
        out (B, Q, H, D), or (out, lse (B, H, Q), None).

    Raises:
        Refused: as for `flash_attn_func`.

    Examples:
        >>> flash_attn_kvpacked_func(torch.zeros(1, 3, 2, 8), torch.zeros(1, 5, 2, 1, 8), causal=True).shape
        torch.Size([1, 3, 2, 8])
    """
    return flash_attn_func(q, *_parts("flash_attn_kvpacked_func", kv, 5, 2), *rest, **options)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *rest: Any, **options: Any) -> Any:
    """`flash_attn_func` of queries, keys and values in one array.

    out = flash_attn_func(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], …)

    Args:
        qkv: (B, n, 3, H, D).
        rest: as for `flash_attn_kvpacked_func`.
        options: the same by name.

    Returns:
        out (B, n, H, D), or (out, lse (B, H, n), None).

    Raises:
        Refused: as for `flash_attn_func`.

    Examples:
        >>> flash_attn_qkvpacked_func(torch.zeros(1, 5, 3, 2, 8), causal=True).shape
        torch.Size([1, 5, 2, 8])
    """
    return flash_attn_func(*_parts("flash_attn_qkvpacked_func", qkv, 5, 3), *rest, **options)


def flash_attn_varlen_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
    block_table: torch.Tensor | None = None,
) -> Any:
    """Attention of sequences of different lengths, packed into one axis.

    Every sequence is a call of `flash_attn_func`; pairs of different sequences are skipped, not masked.

    Args:
        q: (total_q, H, D).
        k: (total_k, G, D), or with block_table pages (N, page, G, D).
        v: (total_k, G, E), or pages (N, page, G, E).
        cu_seqlens_q: (B + 1,) where each sequence of queries starts, and the last ends.
        cu_seqlens_k: (B + 1,) the same of the keys.
        max_seqlen_q: has no effect: the lengths are those of cu_seqlens_q.
        max_seqlen_k: has no effect.
        dropout_p: as for `flash_attn_func`, like all that follow.
        softmax_scale: the factor of q·k.
        causal: whether rows attend to no later key, with the last row at the last key of its sequence.
        window_size: (left, right).
        softcap: c.
        alibi_slopes: (H,) or (B, H).
        deterministic: has no effect.
        return_attn_probs: whether lse is returned, too.
        block_table: (B, n) the pages of each sequence.

    Returns:
        out (total_q, H, E), or (out, lse (H, total_q), None). Rows after the last sequence are 0.

    Raises:
        Refused: as for `flash_attn_func`; starts that do not ascend, or end after the rows.

    Examples:
        >>> q, starts = torch.zeros(7, 2, 8), torch.tensor([0, 3, 7])
        >>> flash_attn_varlen_func(q, q, q, starts, starts, 4, 4, causal=True).shape
        torch.Size([7, 2, 8])
    """
    where, axes = "flash_attn_varlen_func", 3 if block_table is None else 4
    _raise(where, _sizes(q=(q, 3), k=(k, axes), v=(v, axes)))
    rows, keys = (tuple(starts.tolist()) for starts in (cu_seqlens_q, cu_seqlens_k))
    if block_table is not None:
        k, v = (_gathered(pages, block_table, [end - start for start, end in pairwise(keys)]) for pages in (k, v))
        keys = tuple(start - keys[0] for start in keys)
    _raise(where, _starts("cu_seqlens_q", rows, len(q)) + _starts("cu_seqlens_k", keys, len(k)))
    if len(rows) != len(keys):
        given, fix = f"{len(rows)} and {len(keys)} starts", "pass a start of each sequence, and the end of the last"
        raise refuse(where, "cu_seqlens_q and cu_seqlens_k differ in length", given, "B + 1 of each", fix)
    own, place, document = sequences(rows, keys, (len(q), len(k)))
    if alibi_slopes is not None and alibi_slopes.ndim == 2:  # by sequence: rows after the last one have no keys
        slope = table(alibi_slopes[document.clamp(min=0)].T.contiguous(), "slope")[head, query]
    else:
        slope = _slope(alibi_slopes)
    mask, score = _rules(place, causal, window_size, softcap, slope)
    arguments = Arguments(own if mask is None else own & mask, score, softmax_scale, 0)
    found = _attend(q[None], k[None], v[None], arguments, dropout_p, return_attn_probs, where)
    return (found[0][0], found[1][0], None) if return_attn_probs else found[0]


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor,
    kv: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: torch.Tensor,
    max_seqlen_q: int,
    max_seqlen_k: int,
    *rest: Any,
    **options: Any,
) -> Any:
    """`flash_attn_varlen_func` of keys and values in one array.

    out = flash_attn_varlen_func(q, kv[:, 0], kv[:, 1], …)

    Args:
        q: (total_q, H, D).
        kv: (total_k, 2, G, D).
        cu_seqlens_q: (B + 1,) where each sequence of queries starts, and the last ends.
        cu_seqlens_k: (B + 1,) the same of the keys.
        max_seqlen_q: has no effect.
        max_seqlen_k: has no effect.
        rest: as for `flash_attn_kvpacked_func`.
        options: the same by name.

    Returns:
        out (total_q, H, D), or (out, lse (H, total_q), None).

    Raises:
        Refused: as for `flash_attn_varlen_func`.

    Examples:
        >>> starts = torch.tensor([0, 3, 7])
        >>> flash_attn_varlen_kvpacked_func(torch.zeros(7, 2, 8), torch.zeros(7, 2, 1, 8), starts, starts, 4, 4).shape
        torch.Size([7, 2, 8])
    """
    k, v = _parts("flash_attn_varlen_kvpacked_func", kv, 4, 2)
    starts: Any = (cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k)
    return flash_attn_varlen_func(q, k, v, *starts, *rest, **options)


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, *rest: Any, **options: Any
) -> Any:
    """`flash_attn_varlen_func` of queries, keys and values in one array.

    out = flash_attn_varlen_func(qkv[:, 0], qkv[:, 1], qkv[:, 2], …)

    Args:
        qkv: (total, 3, H, D).
        cu_seqlens: (B + 1,) where each sequence starts, and the last ends.
        max_seqlen: has no effect.
        rest: as for `flash_attn_kvpacked_func`.
        options: the same by name.

    Returns:
        out (total, H, D), or (out, lse (H, total), None).

    Raises:
        Refused: as for `flash_attn_varlen_func`.

    Examples:
        >>> flash_attn_varlen_qkvpacked_func(torch.zeros(7, 3, 2, 8), torch.tensor([0, 3, 7]), 4, causal=True).shape
        torch.Size([7, 2, 8])
    """
    q, k, v = _parts("flash_attn_varlen_qkvpacked_func", qkv, 4, 3)
    starts: Any = (cu_seqlens, cu_seqlens, max_seqlen, max_seqlen)
    return flash_attn_varlen_func(q, k, v, *starts, *rest, **options)


@torch.no_grad()
def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    cache_seqlens: int | torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    cache_leftpad: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: Window = (-1, -1),
    softcap: float = 0.0,
    rotary_interleaved: bool = True,
    alibi_slopes: torch.Tensor | None = None,
    num_splits: int = 0,
    return_softmax_lse: bool = False,
) -> Any:
    """Attention over a cache, to which new keys and values are written before, in place.

    out = flash_attn_func(rotate(q), cache[: cache_seqlens + new], …) for each sequence

    Args:
        q: (B, Q, H, D).
        k_cache: (B_cache, S, G, D), or with block_table pages (N, page, G, D).
        v_cache: the same of the values, of depth E.
        k: (B, new, G, D) keys that are appended at cache_seqlens, or None.
        v: (B, new, G, E).
        rotary_cos: (at least S, rotary / 2): k is rotated at its positions, q at those from cache_seqlens on if causal
            or in a window, otherwise at cache_seqlens.
        rotary_sin: the same.
        cache_seqlens: (B,) or one integer: how many keys the cache has before; None means S.
        cache_batch_idx: (B,) which entries of the cache the sequences are; None means the first B.
        cache_leftpad: (B,) where each sequence starts in the cache; None means 0.
        block_table: (B, n) the pages of each sequence.
        softmax_scale: as for `flash_attn_func`, like causal, window_size, softcap and alibi_slopes.
        causal: whether rows attend to no later key.
        window_size: (left, right).
        softcap: c.
        rotary_interleaved: whether neighbours are rotated together; otherwise the two halves of the rotated depth.
        alibi_slopes: (H,) or (B, H).
        num_splits: has no effect.
        return_softmax_lse: whether lse is returned, too.

    Returns:
        out (B, Q, H, E), or (out, lse (B, H, Q)). Without gradients, as in the library.

    Raises:
        Refused: shapes that do not fit, new keys that are longer than the room in the cache, one of k and v, or of
            the angles, alone, and cache_batch_idx or cache_leftpad with block_table.

    Examples:
        >>> k_cache = v_cache = torch.zeros(2, 16, 1, 8)
        >>> new = torch.ones(2, 1, 1, 8)
        >>> q, before = torch.ones(2, 1, 4, 8), torch.tensor([3, 5])
        >>> flash_attn_with_kvcache(q, k_cache, v_cache, new, new, cache_seqlens=before).shape, int(k_cache[1, 5, 0, 0])
        (torch.Size([2, 1, 4, 8]), 1)
    """
    where, paged = "flash_attn_with_kvcache", block_table is not None
    reasons = _sizes(q=(q, 4), k_cache=(k_cache, 4), v_cache=(v_cache, 4))
    if paged and (cache_batch_idx is not None or cache_leftpad is not None):
        given, expected = "block_table with cache_batch_idx or cache_leftpad", "pages of each sequence from its start"
        reasons.append(Reason("two ways to find a sequence", given, expected, "order the rows of block_table"))
    for names, both in (("k and v", (k, v)), ("rotary_cos and rotary_sin", (rotary_cos, rotary_sin))):
        if (both[0] is None) != (both[1] is None):
            reasons.append(Reason(f"one of {names}", "the other is None", "both, or neither", "pass both"))
    _raise(where, reasons)
    B, Q, new = len(q), q.shape[1], 0 if k is None else k.shape[1]
    room = block_table.shape[1] * k_cache.shape[1] if block_table is not None else k_cache.shape[1]
    before = torch.as_tensor(room if cache_seqlens is None else cache_seqlens, dtype=torch.int64).expand(B)
    after = before + new
    if B and (int(after.max()) > room or int(before.min()) < 0):
        given, expected = f"{before.tolist()} keys and {new} new ones", f"at most {room} of each sequence"
        raise refuse(where, "the cache is too short", given, expected, "make a longer cache, or free some of it")
    if rotary_cos is not None and rotary_sin is not None:
        angles = rotary_cos, rotary_sin, rotary_interleaved
        local = causal or tuple(window_size) != (-1, -1)
        q = _rotate(q, before[:, None] + torch.arange(Q) * local, *angles)
        k = None if k is None else _rotate(k, before[:, None] + torch.arange(new), *angles)
    entry = torch.arange(B) if cache_batch_idx is None else cache_batch_idx.long()
    if k is not None and v is not None:
        place = before[:, None] + torch.arange(new)
        page = k_cache.shape[1]
        rows = entry[:, None]
        if block_table is not None:
            rows, place = block_table.long().gather(1, place // page), place % page
        k_cache[rows, place], v_cache[rows, place] = k.to(k_cache.dtype), v.to(v_cache.dtype)
    longest = int(after.max()) if B else 0
    if block_table is not None:
        k_cache, v_cache = (cache[block_table.long()].flatten(1, 2) for cache in (k_cache, v_cache))
    own_entries = slice(B) if cache_batch_idx is None else entry
    keys, values = (cache[own_entries, :longest] for cache in (k_cache, v_cache))
    mask, score = _rules(query, causal, window_size, softcap, _slope(alibi_slopes))
    own: Expr = lengths(after)
    if cache_leftpad is not None:
        own = own & (key >= table(cache_leftpad.long(), "leftpad")[batch])
    arguments = Arguments(own if mask is None else own & mask, score, softmax_scale, after - Q)
    found = _attend(q, keys, values, arguments, 0.0, return_softmax_lse, where)
    return found[:2] if return_softmax_lse else found


def apply_rotary_emb(
    x: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    interleaved: bool = False,
    inplace: bool = False,
    seqlen_offsets: int | torch.Tensor = 0,
    cu_seqlens: torch.Tensor | None = None,
    max_seqlen: int | None = None,
) -> torch.Tensor:
    """Rotary positions of `flash_attn.layers.rotary`: the first numbers of each row are rotated by its angles.

    (a, b) → (a · cos − b · sin, b · cos + a · sin)

    Args:
        x: (B, rows, H, D), or (total, H, D) with cu_seqlens.
        cos: (at least as many positions, rotary / 2).
        sin: the same.
        interleaved: whether neighbours are rotated together; otherwise the two halves of the rotated depth.
        inplace: whether x is changed, too.
        seqlen_offsets: the position of the first row, of all sequences or (B,).
        cu_seqlens: (B + 1,) where packed sequences start.
        max_seqlen: has no effect: the lengths are those of cu_seqlens.

    Returns:
        The rotated array, in the form of x.

    Source:
        Su et al. 2021 (RoFormer).

    Examples:
        >>> x, quarter = torch.tensor([1.0, 2.0]).reshape(1, 1, 1, 2), torch.tensor([[1.0]])
        >>> apply_rotary_emb(x, 0 * quarter, quarter).flatten().tolist()
        [-2.0, 1.0]
    """
    first = torch.as_tensor(seqlen_offsets)
    if cu_seqlens is None:
        places, rows = first.reshape(-1, 1) + torch.arange(x.shape[1]), x
    else:
        counts = cu_seqlens.diff().long()
        before = (first - cu_seqlens[:-1].long()).repeat_interleave(counts)
        places, rows = (torch.arange(len(x)) + before)[None], x[None]
    found = _rotate(rows, places.expand(rows.shape[:2]), cos, sin, interleaved).reshape(x.shape)
    return x.copy_(found) if inplace else found


# ---- rules -----------------------------------------------------------------------------------------------------------


def _rules(place: Expr, causal: bool, window: Window, softcap: float, slope: Expr | None) -> tuple[Expr | None, Any]:
    """(mask, score) for rows whose positions on the key axis are `place`."""
    left, right = window[0], 0 if causal else window[1]
    mask = band(place, left if left >= 0 else None, right if right >= 0 else None)
    score = capped(softcap) if softcap else the_score
    if slope is not None:
        score = score - slope * abs(place - key)
    return mask, None if score is the_score else score


def _slope(slopes: torch.Tensor | None) -> Expr | None:
    """The slope of each head, (H,), or of each sequence and head, (B, H)."""
    if slopes is None:
        return None
    numbers = table(slopes, "slope")
    return numbers[head] if slopes.ndim == 1 else numbers[batch, head]


def _attend(q, k, v, arguments: Arguments, dropout: float, lse: bool, where: str) -> Any:
    """out (B, Q, H, E), or (out, lse, None)."""
    if dropout:
        arguments = arguments._replace(dropout=dropout, seed=int(torch.randint(2**63 - 1, ())))
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    if not lse:
        return attention_rows_first(q, k, v, arguments)
    if dropout:
        given, expected = f"dropout_p={dropout}", "dropout_p=0"
        fix = "leave return_attn_probs out: the pattern is that of the library's own random numbers"
        raise refuse(where, "return_attn_probs with dropout", given, expected, fix)
    out, sums = attention_with_lse(q, k, v, **arguments._asdict())
    return out.transpose(1, 2).contiguous(), sums.masked_fill(sums == -torch.inf, torch.inf), None


def _gathered(pages: torch.Tensor, block_table: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The rows of sequences in pages, packed."""
    whole = [pages[own].flatten(0, 1)[:size] for own, size in zip(block_table.long(), sizes, strict=True)]
    return torch.cat(whole) if whole else pages.new_zeros(0, *pages.shape[2:])


def _rotate(x: torch.Tensor, places: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, pairs: bool) -> torch.Tensor:
    """x (B, n, H, D), of which the first numbers of each row are rotated by the angles of its position (B, n)."""
    cos, sin = (table[places][:, :, None].float() for table in (cos, sin))
    width = 2 * cos.shape[-1]
    turned, rest = x[..., :width].float(), x[..., width:]
    a, b = (turned[..., ::2], turned[..., 1::2]) if pairs else turned.chunk(2, -1)
    both = a * cos - b * sin, b * cos + a * sin
    found = torch.stack(both, -1).flatten(-2) if pairs else torch.cat(both, -1)
    return torch.cat([found.to(x.dtype), rest], -1)


# ---- checks ----------------------------------------------------------------------------------------------------------


def _sizes(**arrays: tuple[Any, int]) -> list[Reason]:
    """A reason for everything but tensors with so many axes."""
    return [
        Reason(
            f"{name} has other axes",
            _shown(array),
            f"a tensor ({'batch, rows' if axes == 4 else 'rows'}, heads, depth)",
            "pass it as flash_attn does: heads are the last axis but one",
        )
        for name, (array, axes) in arrays.items()
        if not isinstance(array, torch.Tensor) or array.ndim != axes
    ]


def _parts(where: str, array: Any, axes: int, count: int) -> tuple[torch.Tensor, ...]:
    """The `count` arrays that are packed along the last axis but two of one with so many axes."""
    if not isinstance(array, torch.Tensor) or array.ndim != axes or array.shape[-3] != count:
        expected, fix = f"(…, {count}, heads, depth)", f"stack the {count} of them"
        raise refuse(where, "a packed array has other axes", _shown(array), expected, fix)
    return array.unbind(-3)


def _starts(name: str, starts: tuple[int, ...], rows: int) -> list[Reason]:
    """A reason unless the starts ascend from 0 or more to at most the number of rows."""
    if starts and starts[0] >= 0 and starts[-1] <= rows and all(a <= b for a, b in pairwise(starts)):
        return []
    return [Reason(f"{name} is not ascending", f"{starts}", f"integers from 0 to {rows}", "pass cumulative lengths")]


def _shown(array: Any) -> str:
    return str(tuple(array.shape)) if isinstance(array, torch.Tensor) else type(array).__name__


def _raise(where: str, reasons: list[Reason]) -> None:
    if reasons:
        raise Refused(where, reasons)
