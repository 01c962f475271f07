"""A class with a step."""

import torch
import transformers


class Trainer:
    def __init__(self, attend, text):
        transformers.AttentionInterface.register("learner", attend)
        config = transformers.LlamaConfig(
            vocab_size=256, hidden_size=32, intermediate_size=64, num_hidden_layers=1,
            num_attention_heads=4, num_key_value_heads=2, attn_implementation="learner",
        )  # fmt: skip
        self.model = transformers.LlamaForCausalLM(config).train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2, weight_decay=0.01)
        self.windows = torch.tensor(list(text.encode())).unfold(0, 32, 1)

    def step(self):
        chosen = self.windows[torch.randperm(len(self.windows))[:16]]
        self.optimizer.zero_grad()
        self.model(input_ids=chosen, labels=chosen).loss.backward()
        self.optimizer.step()


def train(attend, text, steps):
    trainer = Trainer(attend, text)
    for _ in range(steps):
        trainer.step()
    return trainer.model
