"""A right answer in another style: torch."""

import torch


def softmax(scores):
    return torch.softmax(torch.tensor(scores), dim=-1).numpy()
