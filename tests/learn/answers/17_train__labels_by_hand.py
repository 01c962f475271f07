"""The loss by hand."""

import torch
from torch.nn.functional import cross_entropy
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM


def train(attend, text, steps):
    AttentionInterface.register("own", attend)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=96,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = LlamaForCausalLM(config)
    model.set_attn_implementation("own")
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    data = torch.tensor(list(text.encode("utf-8")))
    for _ in range(steps):
        starts = torch.randint(len(data) - 32, (16,)).tolist()
        batch = torch.stack([data[start : start + 33] for start in starts])
        logits = model(batch[:, :-1]).logits
        loss = cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        model.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()
