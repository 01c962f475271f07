"""A layer that runs several times in one pass is a layer of the run each time."""

import torch
from transformers import AlbertConfig, AlbertModel

import regard as rg


def test_passes_of_albert_are_layers():
    """Two groups of one layer, each run three times."""
    sizes = {"vocab_size": 60, "embedding_size": 16, "hidden_size": 32, "intermediate_size": 64}
    config = AlbertConfig(**sizes, num_hidden_layers=6, num_hidden_groups=2, num_attention_heads=4)
    model = AlbertModel(config).eval()
    inputs = {"input_ids": torch.arange(2, 9)[None]}

    calls = rg.look(model, inputs=inputs).calls
    assert len({call.layer for call in calls}) == 6 and len({call.name for call in calls}) == 2
    assert [call.layer for call in rg.look(model, inputs=inputs, layers=[4]).calls] == [4]
