import torch


def rollout(weights):
    identity = torch.eye(weights.shape[-1], dtype=torch.float64)
    steps = [(torch.as_tensor(layer).mean(0) + identity) / 2 for layer in weights]
    result = identity
    for step in steps:
        result = torch.mm(step, result)
    return result.numpy()
