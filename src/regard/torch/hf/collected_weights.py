"""Whether a model wants the weights of an attention call.

Some models pass `output_attentions` on to their attention. Most do not: they collect whatever weights their attention
modules return, if the argument or the configuration of the model says so, and collect nothing if there are none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["wanted"]


def wanted(module: Any, output_attentions: bool | None) -> bool:
    """Whether to return the weights of this call of `module`; None: it passed on no `output_attentions`."""
    collected = _collector()()
    if output_attentions or collected is not None:
        return bool(output_attentions) or any("attentions" in name for name in collected or ())
    configured = getattr(getattr(module, "config", None), "output_attentions", False)
    return output_attentions is None and bool(configured)


@functools.cache
def _collector() -> Callable[[], Mapping[str, list] | None]:
    """What reads the outputs that the running model collects, by name; None outside a model that collects."""
    try:
        from transformers.utils.output_capturing import _active_collector
    except ImportError:  # versions of transformers that collect in another way
        return lambda: None
    return _active_collector.get
