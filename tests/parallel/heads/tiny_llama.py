"""A process of the tensor-parallel Llama: torchrun starts it on each rank; it compares with the whole model."""

import functools
import sys

import torch
import torch.distributed as dist
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM
from transformers.distributed import DistributedConfig
from transformers.masking_utils import create_causal_mask

from regard.torch.hf import attend, record, register
from tests.support.refusals import refusal

torch.set_num_threads(1)
IDS = torch.arange(24).reshape(2, 12) % 50
PADDING = (torch.arange(12) >= torch.tensor([[0], [3]])).long()
Q, K, V = (torch.randn(2, heads, 12, 8, generator=torch.Generator().manual_seed(heads)) for heads in (8, 4, 4))


def save(folder: str) -> None:
    """A random Llama: 8 query heads, 4 key heads, dropout in attention."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 50}
    config = LlamaConfig(
        **sizes, num_attention_heads=8, num_key_value_heads=4, attention_dropout=0.5, tie_word_embeddings=False
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def step(model) -> dict[str, torch.Tensor]:
    """A training step with dropout: the loss, and the gradients of the first layer's attention."""
    model.train()
    torch.manual_seed(7)
    loss = model(IDS, attention_mask=PADDING, labels=IDS).loss
    loss.backward()
    found = {name: each.grad for name, each in model.named_parameters() if "layers.0.self_attn" in name}
    found = {name: grad.full_tensor() if hasattr(grad, "full_tensor") else grad for name, grad in found.items()}
    return found | {"loss": loss.detach()}


def by_head(layer, q, k, v, start=0):
    """Attention with a mask that depends on the head: head h sees the last h + 1 keys."""
    mask = create_causal_mask(
        config=layer.config,
        inputs_embeds=torch.zeros(2, 12, 64),
        attention_mask=None,
        past_key_values=None,
        and_mask_function=lambda b, h, i, j: i - j <= h,
    )
    return attend(layer, q, k, v, mask)[0].transpose(1, 2)


def main(folder: str) -> None:
    """Compares logits, a training step and a mask by head; prints one line that the test reads."""
    register()
    load = functools.partial(AutoModelForCausalLM.from_pretrained, folder, attn_implementation="regard")
    model, alone = load(distributed_config=DistributedConfig(tp_plan="auto")), load()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    with torch.no_grad(), record(model) as calls:
        logits = model.eval()(IDS, attention_mask=PADDING).logits
        assert_close(logits, alone.eval()(IDS, attention_mask=PADDING).logits, rtol=1e-5, atol=1e-5)
    assert [call.shape for call in calls] == [(2, 8 // ranks, 12, 12)] * 2, "regard computes this rank's heads"

    assert_close(step(model), step(alone), rtol=1e-4, atol=1e-6)

    layer, same = model.model.layers[0].self_attn.eval(), alone.model.layers[0].self_attn.eval()
    own = [each.chunk(ranks, 1)[rank] for each in (Q, K, V)]
    assert_close(by_head(layer, *own), by_head(same, Q, K, V).chunk(ranks, 1)[rank], rtol=0, atol=0)
    assert "2 query heads for each key head" in str(refusal(lambda: attend(layer, own[0], K, V, None)))
    added = torch.randn(2, 8 // ranks, 12, 12)
    assert_close(attend(layer, *own, added)[0], attend(torch.nn.Module(), *own, added)[0], rtol=0, atol=0)
    assert "a tensor by head" in str(refusal(lambda: attend(layer.train(), *own, added, dropout=0.5)))
    layer.config.num_attention_heads = 10
    assert "num_attention_heads=10" in str(refusal(lambda: attend(layer, *own, None, dropout=0.5)))
    print(f"rank {rank} of {ranks}: equal", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
