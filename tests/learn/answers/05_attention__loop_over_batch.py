"""A right answer in another style: loop over batch."""

import numpy as np


def attention(query, key, value):
    q, k, v = (x.reshape(-1, *x.shape[-2:]) for x in (query, key, value))
    outs, tables = [], []
    for one in range(len(q)):
        s = q[one] @ k[one].T / np.sqrt(q.shape[-1])
        e = np.exp(s - s.max(axis=1, keepdims=True))
        tables.append(e / e.sum(axis=1, keepdims=True))
        outs.append(tables[-1] @ v[one])
    lead = query.shape[:-2]
    return np.array(outs).reshape(*lead, *outs[0].shape), np.array(tables).reshape(*lead, *tables[0].shape)
