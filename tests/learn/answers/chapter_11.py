"""Right answers to the exercises of chapter 11."""

import math

import numpy as np
import torch

import regard as rg


def numerical__flat(f, x, h=1e-5):
    """The array is flattened, and each number moved in a copy."""
    numbers = np.asarray(x, float).ravel()
    slopes = []
    for i in range(numbers.size):
        step = np.zeros(numbers.size)
        step[i] = h
        above, below = (f((numbers + sign * step).reshape(x.shape)) for sign in (1, -1))
        slopes.append((above - below) / h / 2)
    return np.array(slopes).reshape(x.shape)


def numerical__four_points(f, x, h=1e-5):
    """Four points, which are more accurate at a larger step; as a comprehension over the identity matrix."""
    h = 1e-3
    directions = np.eye(x.size).reshape(x.size, *x.shape) * h
    slopes = [(8 * (f(x + d) - f(x - d)) - f(x + 2 * d) + f(x - 2 * d)) / (12 * h) for d in directions]
    return np.reshape(slopes, x.shape)


def numerical__in_place(f, x, h=1e-5):
    """One working copy, whose number is put back after each step; with nditer."""
    work = np.array(x, dtype=np.float64)
    out = np.empty_like(work)
    numbers = np.nditer(x, flags=["multi_index", "zerosize_ok"])
    for number in numbers:
        at = numbers.multi_index
        work[at] = number + h
        out[at] = f(work)
        work[at] = number - h
        out[at] -= f(work)
        work[at] = number
    return out / (2 * h)


def numerical__recursion(f, x, h=1e-5):
    """Row by row: the gradient of an array is that of each of its parts."""
    if x.ndim == 0:
        return np.array((f(x + h) - f(x - h)) / (2 * h))

    def of_part(i):
        def with_part(part):
            whole = x.copy()
            whole[i] = part
            return f(whole)

        return with_part

    return np.array([numerical__recursion(of_part(i), np.asarray(x[i]), h) for i in range(len(x))]).reshape(x.shape)


def softmax_backward__einsum(p, dp):
    """With einsum, and the products taken first."""
    g = p * dp
    return g - p * np.einsum("...j->...", g)[..., np.newaxis]


def softmax_backward__loops(weights, dweights):
    """Number by number, over lists."""
    if weights.ndim > 1:
        return np.array([softmax_backward__loops(w, d) for w, d in zip(weights, dweights)])
    result = []
    for j in range(len(weights)):
        total = 0.0
        for i in range(len(weights)):
            total += dweights[i] * weights[i] * ((i == j) - weights[j])
        result.append(total)
    return np.array(result)


def softmax_backward__table(weights, dweights):
    """The table of derivatives of each row: a diagonal minus products."""
    diagonal = weights[..., None] * np.eye(weights.shape[-1])
    table = diagonal - weights[..., :, None] * weights[..., None, :]
    return (table @ dweights[..., None])[..., 0]


def softmax_backward__torch(weights, dweights):
    """With the gradients of PyTorch, through a softmax of the logarithms."""
    scores = torch.tensor(weights).log().requires_grad_()
    scores.softmax(-1).backward(torch.tensor(dweights))
    return torch.nan_to_num(scores.grad, 0.0).numpy()


def attention_backward__einsum(q, k, v, dout):
    """With einsum; the scale is in the queries, and a list is returned."""
    root = np.sqrt(q.shape[-1])
    queries = q / root
    scores = np.einsum("id,jd->ij", queries, k)
    p = np.exp(scores - np.max(scores, axis=1, keepdims=True))
    p /= np.sum(p, axis=1, keepdims=True)
    dp = np.einsum("ie,je->ij", dout, v)
    ds = p * (dp - np.einsum("ij,ij->i", p, dp)[:, None])
    return [
        np.einsum("ij,jd->id", ds, k) / root,
        np.einsum("ij,id->jd", ds, queries),
        np.einsum("ij,ie->je", p, dout),
    ]


def attention_backward__rows(q, k, v, dout):
    """Row after row, with products of vectors; δ from the output."""
    s = 1 / np.sqrt(q.shape[1])
    dq, dk, dv = np.zeros(q.shape), np.zeros(k.shape), np.zeros(v.shape)
    for i in range(len(q)):
        x = k @ q[i] * s
        w = np.exp(x - x.max())
        w /= w.sum()
        out = w @ v
        ds = w * (v @ dout[i] - out @ dout[i])
        dq[i] = s * ds @ k
        dk += s * np.outer(ds, q[i])
        dv += np.outer(w, dout[i])
    return dq, dk, dv


def attention_backward__streaming(q, k, v, dout):
    """Key after key, with weights from lse."""
    scale = q.shape[1] ** -0.5
    scores = q @ k.T * scale
    top = scores.max(1)
    lse = top + np.log(np.exp(scores - top[:, None]).sum(1))
    out = np.exp(scores - lse[:, None]) @ v
    delta = (out * dout).sum(1)
    dq, dk, dv = np.zeros_like(q), [], []
    for key, value in zip(k, v):
        weight = np.exp(q @ key * scale - lse)
        dscore = weight * (dout @ value - delta) * scale
        dv.append(weight @ dout)
        dk.append(dscore @ q)
        dq += np.outer(dscore, key)
    return dq, np.array(dk), np.array(dv)


def attention_backward__torch(q, k, v, dout):
    """With the gradients of PyTorch."""
    q, k, v = (torch.tensor(each, requires_grad=True) for each in (q, k, v))
    out = ((q @ k.T) / q.shape[1] ** 0.5).softmax(-1) @ v
    return tuple(each.numpy() for each in torch.autograd.grad(out, (q, k, v), torch.tensor(dout)))


def masked_backward__pairs(q, k, v, dout, mask):
    """Pair after pair."""
    (rows, depth), keys = q.shape, len(k)
    dq, dk, dv = np.zeros((rows, depth)), np.zeros((keys, depth)), np.zeros(v.shape)
    for i in range(rows):
        seen = [j for j in range(keys) if mask[i, j]]
        if seen == []:
            continue
        scores = {j: float(q[i] @ k[j]) / math.sqrt(depth) for j in seen}
        top = max(scores.values())
        total = sum(math.exp(scores[j] - top) for j in seen)
        weight = {j: math.exp(scores[j] - top) / total for j in seen}
        delta = sum(weight[j] * (dout[i] @ v[j]) for j in seen)
        for j in seen:
            ds = weight[j] * (dout[i] @ v[j] - delta) / math.sqrt(depth)
            dq[i] += ds * k[j]
            dk[j] += ds * q[i]
            dv[j] += weight[j] * dout[i]
    return dq, dk, dv


def masked_backward__regard(q, k, v, dout, mask):
    """regard's own."""
    gradients = rg.attention_backward(dout, q, k, v, mask=mask, engine="reference")
    return gradients.q, gradients.k, gradients.v


def masked_backward__torch(q, k, v, dout, mask):
    """With the gradients of PyTorch, row by row over what is allowed."""
    q, k, v = (torch.tensor(each, requires_grad=True) for each in (q, k, v))
    dout, mask = torch.tensor(dout), torch.tensor(mask)
    gradients = [torch.zeros_like(each) for each in (q, k, v)]
    for i in mask.any(1).nonzero()[:, 0]:
        weights = torch.softmax(k[mask[i]] @ q[i] / q.shape[1] ** 0.5, 0)
        found = torch.autograd.grad(weights @ v[mask[i]], (q, k, v), dout[i])
        for whole, part, role in zip(gradients, found, "qkv"):
            if role == "q":
                whole[i] += part[i]
            else:
                whole[mask[i]] += part[mask[i]]
    return tuple(gradients)


def products(allowed, left, right):
    """The sum over the second axis of left · right, over allowed pairs only."""
    return np.where(allowed[..., None], left[..., None] * right, 0.0).sum(1)


def masked_backward__where(q, k, v, dout, mask):
    """Without a loop: each product skips its forbidden pairs."""
    scale = 1 / np.sqrt(q.shape[1])
    scores = np.where(mask, q @ k.T * scale, -np.inf)
    top = scores.max(1, keepdims=True)
    powers = np.exp(scores - np.where(np.isneginf(top), 0, top))
    sums = powers.sum(1, keepdims=True)
    weights = powers / np.where(sums == 0, 1, sums)
    dweights = np.where(mask, dout @ v.T, 0)
    delta = np.where(mask, weights * dweights, 0).sum(1, keepdims=True)
    dscores = np.where(mask, weights * (dweights - delta), 0) * scale
    return products(mask, dscores, k), products(mask.T, dscores.T, q), products(mask.T, weights.T, dout)
