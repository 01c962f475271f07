"""regard's own."""

import regard as rg


def masked_backward(q, k, v, dout, mask):
    gradients = rg.attention_backward(dout, q, k, v, mask=mask, engine="reference")
    return gradients.q, gradients.k, gradients.v
