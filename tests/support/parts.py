"""Some batch entries and heads of a call, with the arguments that make it the same part of the whole."""

import numpy as np
from hypothesis import strategies as st


class Part:
    """Some entries of the batch and some groups of heads of a call, and their arguments."""

    def __init__(self, kwargs, entries: slice, groups: slice):
        q, k, v = (four(kwargs)[name] for name in "qkv")
        ratio = q.shape[1] // k.shape[1]
        heads = slice(groups.start * ratio, groups.stop * ratio)
        own = slice(None) if k.shape[0] == 1 else entries
        self.entries, self.heads, self.groups = entries, heads, groups
        start, sinks = kwargs.get("query_start"), kwargs.get("sinks")
        self.kwargs = kwargs | {
            "q": q[entries, heads],
            "k": k[own, groups],
            "v": v[own, groups],
            "query_start": start[entries] if np.ndim(start) else start,
            "sinks": None if sinks is None else sinks[heads],
            "batch_start": entries.start,
            "head_start": heads.start,
        }

    def of(self, result):
        """The same part of a result of the whole call, (B, H, …) or, if B or H was left out, fewer axes."""
        return result[self.entries, self.heads]


@st.composite
def parts(draw, case):
    """Some part of a call, with at least one entry and one group of heads."""
    q, k = case.kwargs["q"], case.kwargs["k"]

    def span(size):
        first = draw(st.integers(0, size - 1))
        return slice(first, draw(st.integers(first + 1, size)))

    return Part(case.kwargs, span(q.shape[0] if q.ndim == 4 else 1), span(k.shape[-3] if k.ndim > 2 else 1))


def four(kwargs):
    """The whole call with all its axes."""
    named = {name: kwargs[name].reshape((1,) * (4 - kwargs[name].ndim) + kwargs[name].shape) for name in "qkv"}
    return kwargs | named
