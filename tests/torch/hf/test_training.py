"""Transformers models learn on regard as they learn on their own attention code."""

import pytest
import torch
import transformers as T

from regard.torch.hf import attend, register
from regard.torch.hf import attention as hf
from regard.torch.hf.tiny_models import mappings
from tests.support.lanes import sweep
from tests.torch.hf import training_scan
from tests.torch.hf.models import built, on, tokens
from tests.torch.hf.training_scan import KINDS, scanned


def batch():
    """Two sequences, of which the second is padded; nobody asks what follows on padding."""
    inputs = tokens("right")
    ids, mask = inputs.values()
    asked = mask * torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return inputs | {"labels": ids.masked_fill(asked == 0, -100)}


def learned(model, inputs) -> dict[str, torch.Tensor]:
    """The gradient of every parameter."""
    model.zero_grad()
    model(**inputs).loss.backward()
    return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}


def apart(found, want) -> float:
    """The largest difference of a gradient, as a share of the largest gradient of the model."""
    assert found.keys() == want.keys() and found
    return max((found[name] - want[name]).abs().max() for name in want) / max(
        part.abs().max() for part in want.values()
    )


def test_gradient_checkpointing_repeats_the_dropout():
    """Computed once more on the way back, attention drops the same weights: the gradients are those without
    checkpointing.
    """
    model, found = built("llama", attention_dropout=0.3).train(), []
    for _ in range(2):
        torch.manual_seed(7)
        found.append(learned(model, batch()))
        model.gradient_checkpointing_enable({"use_reentrant": False})
    assert apart(*found) == 0


def test_dropout_falls_in_training_only():
    """Training drops weights anew in every step, manual_seed repeats them, and eval() drops nothing."""
    model, inputs = built("llama", attention_dropout=0.5), batch()
    exact = built("llama")(**inputs).logits
    assert torch.equal(model(**inputs).logits, exact)
    torch.manual_seed(3)
    first, second = (model.train()(**inputs).logits for _ in range(2))
    torch.manual_seed(3)
    again = model(**inputs).logits
    assert torch.equal(first, again) and not torch.allclose(first, second) and not torch.allclose(first, exact)


@pytest.mark.parametrize("dtype", [torch.bfloat16, *sweep(torch.float16)])
def test_16_bit_gradients(dtype):
    """Against float32, the gradients of a 16-bit model err no more than twice as much as with the model's own 16-bit
    code.
    """
    exact, model = learned(built("llama"), batch()), built("llama").to(dtype)
    found = learned(model, batch())
    assert apart(found, exact) <= 2 * apart(learned(on(model, "eager"), batch()), exact)


@pytest.mark.parametrize("trains", [True, False])
def test_autocast(trains):
    """Inside autocast queries of float32 and values of bfloat16 meet in bfloat16, as in torch's own attention."""
    model, inputs = built("llama", "sdpa"), batch()
    with torch.set_grad_enabled(trains):
        exact = model(**inputs).logits
        with torch.autocast("cpu", torch.bfloat16):
            usual = model(**inputs).logits
            with hf.record(on(model, "regard")) as calls:
                found = model(**inputs).logits
    assert {call.q.dtype.name for call in calls} == {"bfloat16"}
    assert (found - exact).abs().max() <= 2 * (usual - exact).abs().max()
    if trains:
        slopes = torch.autograd.grad(found.float().square().mean(), model.parameters())
        assert all(slope.isfinite().all() for slope in slopes)


@pytest.mark.sweep
@pytest.mark.slow
def test_a_compiled_model():
    """torch.compile of a model runs attention between its graphs, padding and all, and gives what the model gives."""
    model, inputs = built("llama", num_hidden_layers=1), batch()
    torch.compiler.reset()
    with hf.record(model) as calls:
        want = model(**inputs)
        found = torch.compile(model, backend="aot_eager")(**inputs)
    assert torch.equal(found.logits, want.logits) and len(calls) == 2
    weight = model.model.layers[0].self_attn.q_proj.weight
    ours, theirs = (torch.autograd.grad(each.loss, weight)[0] for each in (found, want))
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


# ---- steps of all architectures --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["llama", "paligemma", "gpt_oss"])
def test_a_step_is_no_worse(name):
    """With labels where the model takes them, and every kind of checkpointing and offloading that it supports."""
    assert scanned(name) == dict.fromkeys(KINDS, "same")


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(mappings()))
def test_no_architecture_is_worse(name):
    """The same for all of transformers: where its own attention trains, regard trains."""
    found = scanned(name)
    assert not [said for said in found.values() if said.startswith("worse")], found


def test_a_worse_step_is_found(monkeypatch):
    """The gradients of an attention that forgets the scale are wrong, in every kind of step."""
    register()
    monkeypatch.setattr(training_scan, "register", register_without_scale)
    assert all(said.startswith("worse") for said in scanned("llama").values())
    register()


def register_without_scale():
    """Registers, in place of regard, an attention that forgets the scale."""
    T.AttentionInterface.register("regard", lambda *args, scaling=None, **more: attend(*args, scaling=1.0, **more))
