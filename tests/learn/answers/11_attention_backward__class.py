"""A class that keeps the weights of its forward pass; softmax and its gradient are functions of their own."""

import numpy as np


def softmax(scores):
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_backward(weights, dweights):
    return weights * (dweights - (weights * dweights).sum(axis=-1, keepdims=True))


class Attention:
    def __init__(self, q, k, v):
        self.q, self.k, self.v = q, k, v
        self.weights = softmax(np.matmul(q, k.transpose()) / np.sqrt(q.shape[-1]))

    def backward(self, dout):
        dscores = softmax_backward(self.weights, np.matmul(dout, self.v.transpose())) / np.sqrt(self.q.shape[-1])
        dq, dk = np.matmul(dscores, self.k), np.matmul(dscores.transpose(), self.q)
        return dq, dk, np.matmul(self.weights.transpose(), dout)


def attention_backward(q, k, v, dout):
    return Attention(q, k, v).backward(dout)
