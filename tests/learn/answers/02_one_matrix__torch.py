"""torch.matmul."""

import torch


def one_matrix(Wq, Wk):
    q, k = (torch.tensor(each) for each in (Wq, Wk))
    return torch.matmul(q, k.mT)
