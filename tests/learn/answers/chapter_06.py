"""Right answers to the exercises of chapter 6."""

import numpy as np


def causal__fromfunction(rows, keys):
    """np.greater_equal.outer on positions."""
    return np.greater_equal.outer(np.arange(keys - rows, keys), np.arange(keys))


def causal__loops(rows, keys):
    """Two loops."""
    allowed = np.zeros((rows, keys), bool)
    for i in range(rows):
        for j in range(keys):
            if j <= i + keys - rows:
                allowed[i, j] = True
    return allowed


def causal__tril(rows, keys):
    """With tril."""
    return np.tril(np.ones((rows, keys), dtype=bool), k=keys - rows)


def causal__whole_triangle(rows, keys):
    """The last rows of the mask of all positions."""
    size = max(rows, keys)
    return ~np.triu(np.full((size, size), True), 1)[size - rows :, :keys] if rows <= keys else _more_rows(rows, keys)


def _more_rows(rows, keys):
    return np.concatenate([np.zeros((rows - keys, keys), bool), causal__whole_triangle(keys, keys)])


def combined__comprehension(lengths, n):
    """Three nested lists."""
    return np.array([[[j <= i and j < size for j in range(n)] for i in range(n)] for size in lengths])


def combined__loop(lengths, n):
    """One text after another."""
    triangle = np.tril(np.ones((n, n), bool))
    masks = []
    for length in lengths:
        mask = triangle.copy()
        mask[:, length:] = False
        masks.append(mask)
    return np.stack(masks)


def combined__minimum(lengths, n):
    """One comparison with the smaller of two limits."""
    limit = np.minimum(np.arange(1, n + 1)[None, :], lengths[:, None])
    return np.arange(n)[None, None, :] < limit[:, :, None]


def combined__product(lengths, n):
    """A product of booleans."""
    causal = np.tril(np.ones((1, n, n), dtype=bool))
    padding = (np.arange(n)[None, :] < np.asarray(lengths)[:, None])[:, None, :]
    return causal * padding


def attend__einsum(q, k, v, mask):
    """With einsum, and the values of forbidden keys replaced."""
    scores = np.einsum("...id,...jd->...ij", q, k) * q.shape[-1] ** -0.5
    scores[~np.broadcast_to(mask, scores.shape)] = -np.inf
    top = np.max(scores, axis=-1, keepdims=True)
    top[np.isneginf(top)] = 0
    e = np.exp(scores - top)
    total = e.sum(axis=-1, keepdims=True)
    e = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    values = np.where(np.broadcast_to(mask, scores.shape)[..., None], v[..., None, :, :], 0.0)
    return np.einsum("...ij,...ije->...ie", e, values)


def attend__keys_one_by_one(q, k, v, mask):
    """One key after another, with a running maximum."""
    shape = (*q.shape[:-1], 1)
    mask = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
    largest, total, out = np.full(shape, -np.inf), np.zeros(shape), np.zeros((*q.shape[:-1], v.shape[-1]))
    for j in range(k.shape[-2]):
        allowed = mask[..., j, None]
        score = np.where(allowed, (q * k[..., j, None, :]).sum(-1, keepdims=True) / np.sqrt(q.shape[-1]), -np.inf)
        higher = np.maximum(largest, score)
        base = np.where(np.isneginf(higher), 0, higher)
        old, new = np.exp(largest - base), np.exp(score - base)
        out = out * old + new * np.where(allowed, v[..., j, None, :], 0)
        total, largest = total * old + new, higher
    return out / np.where(total == 0, 1, total)


class Attention:
    def __call__(self, queries, keys, values, allowed):
        depth = queries.shape[-1]
        weights = self.softmax(np.where(allowed, np.matmul(queries, keys.swapaxes(-2, -1)) / depth**0.5, -np.inf))
        clean = np.where(allowed[..., :, :, None], values[..., None, :, :], 0)
        return np.matmul(weights[..., None, :], clean)[..., 0, :]

    @staticmethod
    def softmax(scores):
        highest = np.nan_to_num(scores.max(-1, keepdims=True), neginf=0.0, nan=np.nan)
        powers = np.exp(scores - highest)
        sums = powers.sum(-1, keepdims=True)
        return powers / (sums + (sums == 0))


def attend__object(q, k, v, mask):
    """A class, whose object is the function; the softmax is a function of its own."""
    return Attention()(q, k, v, mask)


def attend__rows(q, k, v, mask):
    """One row after another, recursively over the axes in front."""
    if q.ndim > 2:
        masks = np.broadcast_to(mask, (*q.shape[:-1], k.shape[-2]))
        parts = [attend__rows(*each) for each in zip(q, k, v, masks)]
        return np.array(parts).reshape(*q.shape[:-1], v.shape[-1])
    out = np.zeros((len(q), v.shape[-1]))
    for row, allowed in enumerate(mask):
        if not allowed.any():
            continue
        scores = k[allowed] @ q[row] / np.sqrt(q.shape[-1])
        weights = np.exp(scores - scores.max())
        out[row] = weights @ v[allowed] / weights.sum()
    return out
