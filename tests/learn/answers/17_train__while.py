"""A while loop, and gradients set to None at its end."""

import torch
from transformers import AttentionInterface, AutoModelForCausalLM, LlamaConfig


def train(attend, text, steps):
    AttentionInterface.register("own-attention", attend)
    config = LlamaConfig(
        vocab_size=256,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="own-attention")
    optimizer = torch.optim.NAdam(model.parameters(), 0.01)
    tokens = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8).long()
    left = steps
    while left:
        places = torch.randint(0, len(tokens) - 32, (16, 1)) + torch.arange(32)
        x = tokens[places]
        model(x, labels=x).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        left -= 1
    return model
