"""As the attention of the model itself: a large negative number, added."""

import torch


def attend(module, query, key, value, attention_mask, scaling, **kwargs):
    group = module.num_key_value_groups
    key = key[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)
    value = value[:, :, None].expand(-1, -1, group, -1, -1).flatten(1, 2)
    rows, keys = query.shape[2], key.shape[2]
    mask = torch.tril(torch.ones(rows, keys), keys - rows).bool() if attention_mask is None else attention_mask
    added = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    weights = torch.softmax(query @ key.mT * scaling + added, dim=-1)
    return torch.matmul(weights, value).permute(0, 2, 1, 3), weights
