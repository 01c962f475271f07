import torch


def measure(weights):
    weights = torch.as_tensor(weights)
    n = weights.shape[-1]
    previous = weights.diagonal(-1, 1, 2).sum(1) / max(n - 1, 1)
    itself = weights.diagonal(0, 1, 2).mean(1)
    entropy = -torch.xlogy(weights, weights).sum(2).mean(1)
    return torch.stack([previous, itself, weights[..., 0].mean(1), entropy], dim=1).numpy()
