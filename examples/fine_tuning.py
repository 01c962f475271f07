"""Fine-tunes a transformers model on regard: a tiny BERT learns to classify the order of two words.

    python examples/fine_tuning.py [steps]

Whether A precedes B cannot be decided from the words alone: the task requires positions and attention. The model is
initialized at random, so nothing is downloaded. A pretrained model, loaded with
`from_pretrained(name, attn_implementation="regard")`, is trained in the same way.
"""

from __future__ import annotations

import sys

import torch
from transformers import BertConfig, BertForSequenceClassification

from regard.torch.hf import attention as hf

FIRST, SECOND, PAD = 1, 2, 0


def sentences(count: int, length: int = 12) -> dict[str, torch.Tensor]:
    """Random words that include A and B; the label is whether A is first. Sentences are padded at the end."""
    ids = torch.randint(3, 30, (count, length))
    places = torch.stack([torch.randperm(length - 4)[:2] for _ in range(count)])
    ids[torch.arange(count), places[:, 0]] = FIRST
    ids[torch.arange(count), places[:, 1]] = SECOND
    real = torch.arange(length) < torch.randint(length - 3, length + 1, (count, 1))
    return {
        "input_ids": ids.where(real, PAD),
        "attention_mask": real.long(),
        "labels": (places[:, 0] < places[:, 1]).long(),
    }


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 150
    torch.manual_seed(0)
    hf.register()
    config = BertConfig(
        vocab_size=30,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=16,
        attn_implementation="regard",
    )
    model = BertForSequenceClassification(config)
    hf.check(model)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for step in range(1, steps + 1):
        loss = model.train()(**sentences(32)).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 50 == 0 or step == steps:
            test = sentences(500)
            with torch.no_grad():
                accuracy = (model.eval()(**test).logits.argmax(-1) == test["labels"]).float().mean()
            print(f"step {step:4}: loss {loss:.3f}, accuracy on new sentences {accuracy:.0%}")


if __name__ == "__main__":
    main()
