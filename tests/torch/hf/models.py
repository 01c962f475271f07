"""Tiny models of transformers that the tests of this folder run on regard and on their own attention."""

import torch

from regard.torch.hf.tiny_models import tiny_model
from tests.support import hf_models

# Generation without chance, to the last token.
GREEDY = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
MIXED = ["sliding_attention", "full_attention"]
SETTINGS = hf_models.SETTINGS | {  # the masks of this one are cut to the last rows
    "gemma4_text": {"num_hidden_layers": 4, "layer_types": 2 * MIXED, "num_kv_shared_layers": 2}
}


def built(name: str, implementation: str = "regard", **more):
    """The tiny model of an architecture, always the same."""
    torch.manual_seed(0)
    return on(tiny_model(name, **SETTINGS.get(name, {}) | more), implementation)


def on(model, implementation: str):
    """The model, set to an implementation of attention."""
    model.set_attn_implementation(implementation)
    return model


def claimed(name: str):
    """A model that computes its attention itself, although its configuration names regard."""
    model = tiny_model(name)
    for part in model.modules():
        if hasattr(part, "config"):
            part.config._attn_implementation_internal = "regard"
    return model


def tokens(padding: str = "none", length: int = 9, **more) -> dict[str, torch.Tensor]:
    """Two sequences, of which the second is padded on the left, on the right, or not at all."""
    ids = torch.randint(3, 64, (2, length), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1, 6:] = 0 if padding == "right" else 1
    mask[1, :3] = 0 if padding == "left" else 1
    return {"input_ids": ids} | ({} if padding == "none" else {"attention_mask": mask}) | more
