"""Calls of regard's own attention in a model without data: noted like those of transformers' interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from ...common.call_hooks import without_data
from ...language.callables import as_mask
from .attention import AttentionCall, streaming


@contextmanager
def own_calls(note: Callable[[AttentionCall], None]) -> Iterator[None]:
    """Inside, calls with tensors that have no data are noted, and give results without values."""

    def answer(q: Any, k: Any, v: Any, arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return _attend(note, q, k, v, arguments), q.new_zeros(q.shape[:-1], dtype=torch.float32)

    token = without_data.set(answer)
    try:
        yield
    finally:
        without_data.reset(token)


def _attend(note: Callable[[AttentionCall], None], q: Any, k: Any, v: Any, arguments: Any) -> torch.Tensor:
    """(…, H, Q, D), (…, G, K, D), (…, G, K, E) -> (…, H, Q, E)."""
    flat = [each.reshape(-1, *each.shape[-3:]) if each.ndim > 3 else each.unsqueeze(0) for each in (q, k, v)]
    B, H, Q, D = flat[0].shape
    G, K, E = flat[2].shape[1:]
    given = arguments.query_start
    start = K - Q if given is None else int(np.ravel(np.asarray(given))[0])
    note(AttentionCall(B, H, G, Q, K, D, E, as_mask(arguments.mask), start, False, q.element_size()))
    return streaming(*flat).reshape(*q.shape[:-1], E)
