"""A layer of attention by hand."""

from torch import nn

B, WIDE, H = 2, 16, 4


class Heads(nn.Module):
    """Attention by hand, with places to plant faults: `turn` splits heads, `attend` is the attention."""

    def __init__(self, attend, turn=None):
        super().__init__()
        self.num_heads = H
        self.q, self.k, self.v = (nn.Linear(WIDE, WIDE) for _ in range(3))
        self.attend = attend
        self.turn = turn or (lambda x: x.unflatten(2, (H, -1)).transpose(1, 2))

    def heads(self, x):
        return [self.turn(part(x)) for part in (self.q, self.k, self.v)]

    def forward(self, x):
        return self.attend(*self.heads(x)).transpose(1, 2).reshape(x.shape)
