"""x-transformers, causal, 3 rows over 2 keys: row 0 is the mean of what it must not see; with flash it is key 0."""

import torch
from x_transformers.attend import Attend

q, v = torch.zeros(1, 1, 3, 2), torch.eye(2)[None, None]
plain, flash = (Attend(causal=True, flash=flash)(q, q[:, :, :2], v)[0][0, 0] for flash in (False, True))
print(plain, flash, sep="\n")  # the last row at the last key; the first row at the first key
assert plain.tolist() == [[0.5, 0.5], [1, 0], [0.5, 0.5]] and flash.tolist() == [[1, 0], [0.5, 0.5], [0.5, 0.5]]
