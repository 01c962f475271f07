"""The Python expression that reproduces a run: the beginning of "copy as Python" on the page."""

from __future__ import annotations

from collections.abc import Mapping

from ..runs.run import Run

# The arguments of `look` that can be written as literals.
NAMES = ("text", "target", "picture", "generate", "layers", "entry", "values", "limit")
LONGEST = 2000  # the most characters of the expression
UNKNOWN = 'rg.Run.open("run")  # save it first: run.save("run")'


def origin(run: Run) -> str:
    """An ASCII expression: opens the folder of the run if it is known, otherwise calls `look` with its arguments.

    A run of arrays or of a module cannot be reproduced this way: the expression then says to save it first.

    >>> import numpy as np
    >>> from regard.lens.look import of_arrays
    >>> origin(of_arrays(*np.zeros((2, 1, 4, 8))))
    'rg.Run.open("run")  # save it first: run.save("run")'
    """
    folder, made = run.facts.get("folder"), run.facts.get("made")
    if isinstance(folder, str):
        return f"rg.Run.open({folder!a})"
    if not isinstance(made, Mapping):
        return UNKNOWN
    given = {**({"text": run.text} if run.text else {}), **made}
    arguments = [ascii(given.get("what")), *(f"{name}={given[name]!a}" for name in NAMES if name in given)]
    found = f"rg.look({', '.join(arguments)})"
    return found if len(found) <= LONGEST else UNKNOWN
