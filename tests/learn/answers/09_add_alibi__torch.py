"""torch."""

import torch


def add_alibi(scores, slopes):
    scores, slopes = torch.as_tensor(scores), torch.as_tensor(slopes)
    n, m = scores.shape[-2:]
    place = torch.arange(m, device=scores.device)
    return scores - slopes.view(-1, 1, 1) * (place[m - n :].unsqueeze(1) - place).abs()
