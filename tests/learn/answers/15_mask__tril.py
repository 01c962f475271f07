"""With np.tril and np.equal.outer."""

import numpy as np


def mask(task, document, given):
    together = np.equal.outer(document, document)
    if task == "gaps":
        return together
    causal = np.tril(np.ones_like(together))
    if task == "prefix":
        causal = np.logical_or(causal, given[np.newaxis, :])
    return np.logical_and(together, causal)
