"""Where a run comes from, as Python that gives it again: what "copy as Python" on the page begins with."""

from __future__ import annotations

from collections.abc import Mapping

from ..runs.run import Run

__all__ = ["origin"]

NAMES = (
    "text",
    "target",
    "picture",
    "generate",
    "layers",
    "entry",
    "values",
    "limit",
)  # the arguments of `look` that words can say
LONGEST = 2000  # letters that are spelled out
UNSAID = 'rg.Run.open("run")  # save it first: run.save("run")'


def origin(run: Run) -> str:
    """An expression, in ASCII: the folder where the run lies if that is known, otherwise the call of `look` that made
    it.

    What words cannot say, such as arrays or a module that was handed over, has to be saved first, and the expression
    says so.

    >>> import numpy as np
    >>> from regard.lens.look import of_arrays
    >>> origin(of_arrays(*np.zeros((2, 1, 4, 8))))
    'rg.Run.open("run")  # save it first: run.save("run")'
    """
    folder, made = run.facts.get("folder"), run.facts.get("made")
    if isinstance(folder, str):
        return f"rg.Run.open({folder!a})"
    if not isinstance(made, Mapping):
        return UNSAID
    given = {**({"text": run.text} if run.text else {}), **made}
    said = [ascii(given.get("what")), *(f"{name}={given[name]!a}" for name in NAMES if name in given)]
    found = f"rg.look({', '.join(said)})"
    return found if len(found) <= LONGEST else UNSAID
