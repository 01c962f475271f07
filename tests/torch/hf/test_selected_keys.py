"""Models with sparse attention, whose indexers select keys for each row, give what their own code does."""

import pytest
import torch

import regard as rg
from regard.torch.hf import attend, check, record
from tests.support.refusals import refusing
from tests.torch.hf.models import built, on

MODELS = ["axk2", "deepseek_v32", "glm_moe_dsa", "hy_v4", "mistral_large4_text"]


def few(name: str):
    """A tiny model whose rows attend to four keys."""
    torch.manual_seed(0)
    model = built(name, "eager").eval()
    for part in model.modules():
        if hasattr(part, "index_topk"):
            part.index_topk = 4
    return model


@pytest.mark.parametrize("name", MODELS)
def test_a_model_with_an_indexer(name):
    """Outputs with padding and with a cache, and gradients."""
    model = few(name)
    ids = torch.randint(3, 50, (2, 12), generator=torch.Generator().manual_seed(1))
    real = torch.ones_like(ids)
    real[1, :3] = 0
    results = []
    for implementation in ("eager", "regard"):
        on(model, implementation)
        first = model(input_ids=ids, attention_mask=real, use_cache=True)
        longer = torch.nn.functional.pad(real, (0, 1), value=1)
        cached = model(input_ids=ids[:, :1], attention_mask=longer, past_key_values=first.past_key_values)
        out = torch.cat([first[0][real.bool()], cached[0].flatten(0, 1)])
        model.zero_grad()
        out.square().mean().backward()
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        results.append((out, torch.cat([each.flatten() for each in gradients])))
    with record(model) as calls:
        model(input_ids=ids)
    check(model)
    assert calls and all("selected" in str(call.mask) for call in calls)
    for found, expected in zip(*results):
        torch.testing.assert_close(expected, found, rtol=1e-3, atol=1e-4 * float(found.detach().abs().max()))


def test_indices_of_other_rows_are_refused():
    """One list of keys for each row, of keys that exist."""
    q = k = v = torch.zeros(2, 2, 5, 4)
    module = torch.nn.Module()
    indices = torch.zeros(2, 5, 3, dtype=torch.int32)
    out, _ = attend(module, q, k, v, None, is_causal=False, indices=indices)
    assert torch.equal(out, v.transpose(1, 2))
    with refusing("the selected keys are those of other rows"):
        attend(module, q, k, v, None, is_causal=False, indices=indices[:, :4])
    with refusing("a selected key does not exist"):
        attend(module, q, k, v, None, is_causal=False, indices=indices + 5)
    assert rg.selected_keys(indices[:, None]).tables[0].shape == (2, 1, 5, 2)
