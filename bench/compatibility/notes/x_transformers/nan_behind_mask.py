"""x-transformers lets a NaN in a masked value through; with flash also one in a masked key."""

import torch
from x_transformers.attend import Attend

x, bad, mask = torch.ones(1, 1, 3, 2), torch.ones(1, 1, 3, 2), torch.tensor([[True, True, False]] * 3)[None, None]
bad[0, 0, 2] = torch.nan
found = [Attend(flash=flash)(x, k, v, mask=mask)[0] for flash in (False, True) for k, v in ((bad, x), (x, bad))]
print(*(bool(each.isnan().any()) for each in found))
assert [bool(each.isnan().any()) for each in found] == [False, True, True, True]
