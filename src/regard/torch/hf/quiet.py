"""Silences transformers and the hub for a while."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences transformers and the hub inside the block; errors are reported by `Refused` only."""
    import huggingface_hub.utils as hub
    import transformers.utils.logging as own

    levels = own.get_verbosity(), hub.logging.get_verbosity()
    bars = own.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    own.set_verbosity_error()
    hub.logging.set_verbosity_error()
    own.disable_progress_bar()  # those of the hub as well
    try:
        yield
    finally:
        own.set_verbosity(levels[0])
        hub.logging.set_verbosity(levels[1])
        if bars[0]:
            own.enable_progress_bar()
        (hub.enable_progress_bars if bars[1] else hub.disable_progress_bars)()
