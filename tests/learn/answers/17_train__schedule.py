"""A learning rate that falls, gradients that are clipped, and a loop that ends by itself."""

import torch
from transformers import AttentionInterface, LlamaConfig, LlamaForCausalLM


def batches(text, steps):
    data = bytearray(text, "utf-8")
    for _ in range(steps):
        starts = torch.randint(0, len(data) - 31, (16,)).tolist()
        yield torch.tensor([list(data[start : start + 32]) for start in starts])


def train(attend, text, steps):
    AttentionInterface.register("mine", attend)
    config = LlamaConfig(vocab_size=256, hidden_size=32, intermediate_size=128, num_hidden_layers=1)
    config.num_attention_heads, config.num_key_value_heads, config.head_dim = 4, 2, 8
    model = LlamaForCausalLM(config)
    model.set_attn_implementation("mine")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.015)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.3, max(steps, 1))
    for batch in batches(text, steps):
        optimizer.zero_grad(set_to_none=True)
        model(batch, labels=batch).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model
