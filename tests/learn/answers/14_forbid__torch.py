import torch


def forbid(scores, query, key):
    changed = torch.tensor(scores)
    changed[:, query, key] = -torch.inf
    return changed.softmax(-1).nan_to_num(0).numpy()
