"""Where a run comes from, as Python that gives it again: what "copy as Python" on the page begins with."""

from __future__ import annotations

from ..run import Run

__all__ = ["origin"]

DEFAULT = "all-MiniLM-L6-v2"  # what `look` opens when no model is named
LONGEST = 500  # letters of a text that are spelled out


def origin(run: Run) -> str:
    """An expression, in ASCII: the folder where the run lies if that is known, otherwise how it was recorded.

    >>> import numpy as np
    >>> from regard.lens.look import of_arrays
    >>> origin(of_arrays(*np.zeros((2, 1, 4, 8))))
    'rg.look(q, k=k)'
    """
    folder = run.facts.get("folder")
    if isinstance(folder, str):
        return f"rg.Run.open({folder!a})"
    if not run.text:
        return "rg.look(q, k=k)" if run.model == "arrays" else "rg.look(model, inputs=inputs)"
    text = ascii(run.text) if len(run.text) <= LONGEST else 'open("text.txt", encoding="utf-8").read()'
    model = "None" if run.model == DEFAULT else ascii(run.model)
    return f"rg.look({model}, {text})"
