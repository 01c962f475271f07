"""A run in a notebook: its page in a sandboxed frame without access to the notebook or the network."""

from __future__ import annotations

import html

from ..runs.run import Run
from . import embed
from .html import page

HEIGHT = 860  # pixels


def frame_of(run: Run, height: int = HEIGHT) -> str:
    """The page of a run as an <iframe>, or a sentence if the run is too long for one page.

    >>> import numpy as np
    >>> from regard.lens.look import of_arrays
    >>> frame_of(of_arrays(*np.zeros((2, 1, 4, 8))))[:41]
    '<iframe sandbox="allow-scripts allow-down'
    """
    if not embed.fits(run):
        return (
            f"<p>This run of {html.escape(run.model)} is too long for one page: save it with "
            "<code>run.save(folder)</code> and open it with <code>regard look folder --serve</code>.</p>"
        )
    made = page(run)
    return (
        '<iframe sandbox="allow-scripts allow-downloads" referrerpolicy="no-referrer" title="regard" '
        f'width="100%" height="{height}" '
        f'style="border: 0; border-radius: 8px" srcdoc="{html.escape(made, quote=True)}"></iframe>'
    )
