"""Groups as an axis of their own, without copies of the keys."""

import torch


def attention(q, k, v, mask=None, causal=False, scale=None):
    B, H, n, D = q.shape
    G, m = k.shape[1:3]
    grouped = q.reshape(B, G, H // G, n, D)
    ok = q.new_ones(n, m, dtype=torch.bool)
    ok = torch.tril(ok, m - n) if causal else ok
    ok = (ok if mask is None else ok & mask).expand(B, H, n, m).reshape(B, G, H // G, n, m)
    s = torch.einsum("bghid,bgjd->bghij", grouped, k)
    s = s * (D**-0.5 if scale is None else scale)
    s = torch.where(ok, s, -torch.inf)
    w = torch.where(ok, torch.softmax(s, -1), 0)
    values = torch.where(ok[..., None], v[:, :, None, None], 0)
    return torch.einsum("bghij,bghije->bghie", w, values).reshape(B, H, n, v.shape[-1])
