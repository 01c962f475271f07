"""Right answers to the exercises of chapter 12."""

import math

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention


def merge__logaddexp(parts):
    """Weights that sum to 1, from the lse of all parts."""
    lse = np.logaddexp.reduce([lse for _, lse in parts])
    out = 0
    for part, own in parts:
        weight = np.exp(own - np.where(np.isneginf(lse), 0, lse))[:, None]
        out = out + weight * np.nan_to_num(part) * (weight > 0)
    return out, lse


def merge__loops(parts):
    """Row by row, with lists and the functions of math."""
    outs, lses = [], []
    for row in range(len(parts[0][1])):
        present = [(out[row], lse[row]) for out, lse in parts if lse[row] > -math.inf]
        if not present:
            outs.append([0.0] * parts[0][0].shape[1])
            lses.append(-math.inf)
            continue
        top = max(lse for _, lse in present)
        denominators = [math.exp(lse - top) for _, lse in present]
        total = math.fsum(denominators)
        columns = zip(*(out for out, _ in present))
        outs.append([sum(d * x for d, x in zip(denominators, column)) / total for column in columns])
        lses.append(top + math.log(total))
    if not lses:
        return parts[0]
    return outs, lses


def two(a, b):
    (one, first), (other, second) = a, b
    lse = np.logaddexp(first, second)
    base = np.where(lse == -np.inf, 0.0, lse)
    wa, wb = np.exp(first - base)[:, None], np.exp(second - base)[:, None]
    return wa * np.where(wa == 0, 0, one) + wb * np.where(wb == 0, 0, other), lse


def merge__recursion(parts):
    """A tree: two halves are merged, each of them merged before."""
    if len(parts) == 1:
        out, lse = parts[0]
        return np.where(np.isneginf(lse)[:, None], 0, out), lse
    middle = len(parts) // 2
    return two(merge__recursion(parts[:middle]), merge__recursion(parts[middle:]))


def merge__torch(parts):
    """With a softmax over the parts."""
    outs = torch.stack([torch.as_tensor(out) for out, _ in parts])
    lses = torch.stack([torch.as_tensor(lse) for _, lse in parts])
    weights = lses.softmax(0).nan_to_num(0.0)[..., None]
    return (weights * outs.masked_fill(weights == 0, 0.0)).sum(0), lses.logsumexp(0)


def streaming__lists(q, k, v, block):
    """Lists and numbers: each row goes through the blocks."""
    rows = []
    for row in q.tolist():
        m, total, sums = -math.inf, 0.0, [0.0] * v.shape[1]
        for at in range(0, len(k), block):
            keys, values = k[at : at + block].tolist(), v[at : at + block].tolist()
            scores = [sum(a * b for a, b in zip(row, key)) / math.sqrt(len(row)) for key in keys]
            new = max(m, *scores)
            factor, exps = math.exp(m - new), [math.exp(score - new) for score in scores]
            total = total * factor + sum(exps)
            sums = [each * factor + sum(e * value[i] for e, value in zip(exps, values)) for i, each in enumerate(sums)]
            m = new
        rows.append([each / total if total else 0.0 for each in sums])
    return np.array(rows).reshape(len(q), v.shape[1])


def part(q, k, v):
    s = q @ k.T / np.sqrt(q.shape[1])
    lse = np.logaddexp.reduce(s, axis=1)
    return np.exp(s - lse[:, None]) @ v, lse


def streaming__merge(q, k, v, block):
    """A part (out, lse) for each block, merged with what there is."""
    out = np.zeros((q.shape[0], v.shape[1]))
    lse = np.full(q.shape[0], -np.inf)
    for start in range(0, k.shape[0], block):
        one, own = part(q, k[start : start + block], v[start : start + block])
        both = np.logaddexp(lse, own)
        out = np.exp(lse - both)[:, None] * out + np.exp(own - both)[:, None] * one
        lse = both
    return out


def streaming__ones_column(q, k, v, block):
    """The denominator as one more column of the values, all ones; recursion over the blocks."""
    values = np.concatenate([v, np.ones((len(v), 1))], axis=1)

    def sums(start):
        """The maximum and the sums of all blocks before `start`."""
        if start <= 0:
            return np.full((len(q), 1), -np.inf), np.zeros((len(q), values.shape[1]))
        here = slice(start - block, start)
        before, sum_before = sums(start - block)
        scores = q @ k[here].T / np.sqrt(q.shape[1])
        largest = np.maximum(before, scores.max(1, keepdims=True))
        return largest, np.exp(before - largest) * sum_before + np.exp(scores - largest) @ values[here]

    _, found = sums(-(-len(k) // block) * block)
    return found[:, :-1] / np.maximum(found[:, -1:], 1e-300)


def streaming__two_passes(q, k, v, block):
    """Two passes over the blocks: the maximum first, then the sums."""
    blocks = [slice(at, at + block) for at in range(0, len(k), block)]
    q = q / np.sqrt(q.shape[1])
    top = np.full((len(q), 1), -np.inf)
    for each in blocks:
        top = np.maximum(top, (q @ k[each].T).max(axis=1, keepdims=True))
    total, out = np.zeros((len(q), 1)), np.zeros((len(q), v.shape[1]))
    for each in blocks:
        exps = np.exp(q @ k[each].T - top)
        total += exps.sum(axis=1, keepdims=True)
        out += exps @ v[each]
    return out / total if blocks else out


def step__lists(cache, q, k, v):
    """Lists: each row sees the keys up to its own."""
    keys = [old.tolist() + new.tolist() for old, new in zip(cache[0], k)]
    values = [old.tolist() + new.tolist() for old, new in zip(cache[1], v)]
    past, out = cache[0].shape[1], []
    for head, rows in enumerate(q.tolist()):
        out.append([])
        for i, row in enumerate(rows):
            seen = slice(0, past + i + 1)
            scores = [sum(a * b for a, b in zip(row, key)) / math.sqrt(len(row)) for key in keys[head][seen]]
            exps = [math.exp(score - max(scores)) for score in scores]
            columns = zip(*values[head][seen])
            out[-1].append([sum(e * x for e, x in zip(exps, column)) / sum(exps) for column in columns])
    return out, (keys, values)


def sums_of(q, k, v, allowed):
    scores = np.where(allowed, q @ k.transpose(0, 2, 1) / np.sqrt(q.shape[2]), -np.inf)
    largest = scores.max(2, keepdims=True, initial=-np.inf)
    exps = np.exp(scores - np.where(largest == -np.inf, 0, largest))
    return largest, exps.sum(2, keepdims=True), exps @ v


def step__merge(cache, q, k, v):
    """Two parts, the cache and the new tokens, merged by their sums."""
    rows = q.shape[1]
    m1, l1, o1 = sums_of(q, *cache, True)
    m2, l2, o2 = sums_of(q, k, v, np.tril(np.ones((rows, rows), bool)))
    m = np.maximum(m1, m2)
    a, b = np.exp(m1 - m), np.exp(m2 - m)
    joined = tuple(np.concatenate(pair, axis=1) for pair in zip(cache, (k, v)))
    return (a * o1 + b * o2) / (a * l1 + b * l2), joined


def step__one_token_at_a_time(cache, q, k, v):
    """Recursion: the first new token, then the others."""
    keys = np.hstack([cache[0], k[:, :1]])
    values = np.hstack([cache[1], v[:, :1]])
    scores = (q[:, :1] * keys).sum(-1) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights = weights / weights.sum(-1, keepdims=True)
    out = (weights[..., None] * values).sum(1, keepdims=True)
    if q.shape[1] == 1:
        return out, [keys, values]
    rest, cache = step__one_token_at_a_time((keys, values), q[:, 1:], k[:, 1:], v[:, 1:])
    return np.hstack([out, rest]), cache


def step__torch(cache, q, k, v):
    """With a function of torch and a boolean mask."""
    q, k, v, keys, values = (torch.as_tensor(x) for x in (q, k, v, *cache))
    keys, values = torch.cat([keys, k], 1), torch.cat([values, v], 1)
    past, rows = keys.shape[1] - q.shape[1], q.shape[1]
    allowed = torch.ones(rows, past + rows, dtype=torch.bool).tril(past)
    out = scaled_dot_product_attention(q[None], keys[None], values[None], attn_mask=allowed)[0]
    return out, (keys, values)
