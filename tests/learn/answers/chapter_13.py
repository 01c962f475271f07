"""Right answers to the exercises of chapter 13."""

import math

import numpy as np
import torch


def window__difference_of_masks(query, key, width):
    """The causal mask without the causal mask of an earlier row."""
    return (key <= query) ^ (key <= query - width)


def causal(query, key):
    return key <= query


def recent(width):
    return lambda query, key: query < key + width


def window__lambdas(query, key, width):
    """Two masks, joined."""
    return causal(query, key) & recent(width)(query, key)


def window__middle(query, key, width):
    """One comparison: the distance from the middle of the window."""
    return abs(2 * (query - key) - (width - 1)) <= width - 1


def window__not(query, key, width):
    """What is forbidden, and its opposite."""
    future = key > query
    too_far = key <= query - width
    return ~(future | too_far)


def pairs__clip(distances, n):
    """The rows that are missing are clipped, not the counts."""
    return n * distances.size - np.minimum(distances, n).sum()


def pairs__recursion(distances, n):
    """The last row, and the text before it."""
    if not len(distances):
        return 0
    return pairs__recursion(distances[1:], n) + len(range(int(distances[0]), n))


def pairs__selected(behind, tokens):
    """Only the distances that occur, and a float."""
    behind = np.asarray(behind)[np.asarray(behind) < tokens]
    return float(tokens * len(behind) - behind.sum())


def pairs__table(distances, n):
    """A table of all pairs, which is right for short texts."""
    positions = np.arange(n)
    return np.isin(positions[:, None] - positions, distances).sum()


def strided__forbidden(query, key, stride):
    """What is forbidden."""
    back = query - key
    between = (back > stride) & (back % stride != 0)
    return ~((back < 0) | between)


def behind(query, key):
    return query - key


def local(query, key, stride):
    return behind(query, key) < stride


def column(query, key, stride):
    return behind(query, key) % stride < 1


def strided__parts(query, key, stride):
    """A function for each part."""
    either = local(query, key, stride) | column(query, key, stride)
    return either & (behind(query, key) >= 0)


def strided__quotient(query, key, stride):
    """The remainder by a quotient."""
    back = query - key
    near = back // stride == 0
    far = back - back // stride * stride == 0
    return ~(key > query) & (near | far)


def strided__remainders(q, k, s):
    """Equal remainders of both positions."""
    near = (k > q - s) & (k <= q)
    far = (q % s == k % s) & (k <= q)
    return near | far


def feature(x):
    """φ: x + 1 for positive numbers, exp(x) for the others."""
    return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))


def linear__einsum(q, k, v):
    """Linear attention by einsum."""
    fq, fk = feature(q), feature(k)
    state = np.einsum("kd,ke->de", fk, v)
    total = np.einsum("qd,kd->q", fq, fk, optimize=False)
    return np.einsum("qd,de->qe", fq, state) / total[..., None]


def phi(number):
    return number + 1 if number > 0 else math.exp(number)


def linear__loops(q, k, v):
    """The state in loops, and a row after another."""
    depth, value_depth = q.shape[1], v.shape[1]
    sums = [[0.0] * value_depth for _ in range(depth)]
    total = [0.0] * depth
    for key, value in zip(k, v):
        for i in range(depth):
            f = phi(key[i])
            total[i] += f
            for j in range(value_depth):
                sums[i][j] += f * value[j]
    out = np.zeros((len(q), value_depth))
    for at, row in enumerate(q):
        f = [phi(number) for number in row]
        below = sum(a * b for a, b in zip(f, total))
        for j in range(value_depth):
            out[at, j] = sum(f[i] * sums[i][j] for i in range(depth)) / below
    return out


def linear__ones(q, k, v):
    """A column of ones beside the values."""
    joined = np.concatenate([v, np.ones((len(v), 1))], axis=1)
    out = feature(q) @ (feature(k).T @ joined)
    return out[:, :-1] / out[:, -1:]


def torch_feature(x):
    return torch.nn.functional.elu(x) + 1


def linear__torch(q, k, v):
    """Linear attention in PyTorch."""
    q, k, v = (torch.as_tensor(each, dtype=torch.float64) for each in (q, k, v))
    fq, fk = torch_feature(q), torch_feature(k)
    return fq @ (fk.T @ v) / (fq @ fk.sum(0)).unsqueeze(1)


def causal_linear__chunk(q, k, v, S, z):
    """One chunk: a table with a causal mask, and the state."""
    fq, fk = feature(q), feature(k)
    weights = np.tril(fq @ fk.T)
    below = weights.sum(1) + fq @ z
    return (weights @ v + fq @ S) / below[:, None], S + fk.T @ v, z + fk.sum(0)


class State:
    def __init__(self, S, z):
        self.joined = np.concatenate([S, z[:, None]], 1)

    def add(self, key, value):
        self.joined = self.joined + np.outer(feature(key), np.append(value, 1.0))

    def read(self, query):
        out = feature(query) @ self.joined
        return out[:-1] / out[-1]


def causal_linear__class(q, k, v, S, z):
    """The state as an object."""
    state, out = State(S, z), []
    for query, key, value in zip(q, k, v):
        state.add(key, value)
        out.append(state.read(query))
    return np.array(out).reshape(len(q), v.shape[1]), state.joined[:, :-1], state.joined[:, -1]


def causal_linear__recursion(q, k, v, S, z):
    """The first token, then the others."""
    if not len(q):
        return np.zeros((0, v.shape[1])), S, z
    key = feature(k[0])
    S, z = S + key[:, None] * v[0], z + key
    row = feature(q[0])
    others, last_S, last_z = causal_linear__recursion(q[1:], k[1:], v[1:], S, z)
    return np.vstack([row @ S / np.dot(row, z), others]), last_S, last_z


def causal_linear__torch(q, k, v, S, z):
    """Causal linear attention in PyTorch."""
    q, k, v, S, z = (torch.as_tensor(each, dtype=torch.float64) for each in (q, k, v, S, z))
    out = torch.zeros(len(q), v.shape[1], dtype=torch.float64)
    for i in range(len(q)):
        S = S + torch.outer(torch_feature(k[i]), v[i])
        z = z + torch_feature(k[i])
        out[i] = torch_feature(q[i]) @ S / (torch_feature(q[i]) @ z)
    return out, S, z
