"""Transformers models learn on regard as they learn on their own attention code."""

import pytest
import torch
import transformers as T

from bench.model_errors import Doubled
from regard.torch.hf import attention as hf
from tests.support.hf_models import GROUPED, sharpened

T.logging.set_verbosity_error()

BART = {
    "vocab_size": 64,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 64,
}

MODELS = {
    "llama": lambda layers=2, **more: T.LlamaForCausalLM(
        T.LlamaConfig(**{**GROUPED, "num_hidden_layers": layers}, **more)
    ),
    "gemma2, softcap, windows": lambda **more: T.Gemma2ForCausalLM(
        T.Gemma2Config(**GROUPED, sliding_window=4, query_pre_attn_scalar=8, attn_logit_softcapping=2.0, **more)
    ),
    "gpt-oss, sinks": lambda **more: T.GptOssForCausalLM(
        T.GptOssConfig(**GROUPED, sliding_window=4, num_local_experts=2, num_experts_per_tok=1, **more)
    ),
    "t5, learned position bias": lambda **more: T.T5ForConditionalGeneration(
        T.T5Config(
            vocab_size=64,
            d_model=32,
            d_kv=8,
            d_ff=48,
            num_layers=2,
            num_heads=4,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            **more,
        )
    ),
    "bart, cross-attention": lambda **more: T.BartForConditionalGeneration(T.BartConfig(**BART, dropout=0.0, **more)),
}


@pytest.fixture(autouse=True)
def _registered():
    hf.register()


def built(name: str, **more):
    """The tiny model, on regard, with weights large enough that attention matters."""
    torch.manual_seed(0)
    model = sharpened(MODELS[name](**more))
    model.set_attn_implementation("regard")
    if hasattr(model.config, "num_local_experts"):
        model.set_experts_implementation("eager")  # the fast one knows no float64
    return model


def batch(padding: str = "right"):
    """Two sequences, of which the second is padded; nobody asks what follows on padding."""
    ids = torch.randint(3, 64, (2, 9), generator=torch.Generator().manual_seed(5))
    mask = torch.ones_like(ids)
    mask[1, slice(6, None) if padding == "right" else slice(3)] = 0
    asked = mask * torch.nn.functional.pad(mask, (1, 0))[:, :-1]
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(asked == 0, -100)}


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


@pytest.mark.spread
@pytest.mark.parametrize("padding", ["left", "right"])
@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_has_eagers_gradient(name, padding):
    """Against eager in float64, regard's gradients err no more than four times what eager's own in float32 do."""
    model, inputs = built(name).train(), batch(padding)
    found = learned(model, inputs)
    model.set_attn_implementation("eager")
    usual = learned(model, inputs)
    with Doubled():
        exact = learned(model.double(), inputs)
    assert apart(found, exact) <= 4 * apart(usual, exact)


def test_models_that_view_the_result_learn():
    """The result lies as the models' own does, (batch, rows, heads, depth) in a row, with gradients too: some models
    view it.
    """
    q = torch.randn(1, 4, 3, 8, requires_grad=True)
    out, _ = hf.attend(torch.nn.Identity(), q, q, q, None, is_causal=False)
    assert out.requires_grad and out.view(1, 3, 32).shape == (1, 3, 32)


def test_gradient_checkpointing_repeats_the_dropout():
    """Computed once more on the way back, attention drops the same weights: the gradients are those without
    checkpointing.
    """
    inputs, found = batch(), []
    for recompute in (False, True):
        model = built("llama", attention_dropout=0.3).train()
        if recompute:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        torch.manual_seed(7)
        found.append(learned(model, inputs))
    assert apart(*found) == 0


def test_dropout_falls_in_training_only():
    """Training drops weights anew in every step, manual_seed repeats them, and eval() drops nothing."""
    model, inputs = built("llama", attention_dropout=0.5), batch()
    exact = built("llama")(**inputs).logits
    assert torch.equal(model.eval()(**inputs).logits, exact)
    torch.manual_seed(3)
    first, second = (model.train()(**inputs).logits for _ in range(2))
    torch.manual_seed(3)
    again = model(**inputs).logits
    assert torch.equal(first, again) and not torch.allclose(first, second) and not torch.allclose(first, exact)


def test_dropout_leaves_the_mean():
    """Over many draws, the attention with dropout is on average the attention without."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, 16, 8)
    module = torch.nn.Identity().train()
    exact = hf.attend(module, q, k, v, None)[0]
    draws = torch.stack([hf.attend(module, q, k, v, None, dropout=0.25)[0] for _ in range(400)])
    error = (draws.mean(0) - exact).abs() / (draws.std(0) / 20).clamp(min=1e-3)
    assert error.max() < 5


def test_packed_documents_learn_as_they_do_alone():
    """Position ids that start anew keep documents apart, forward and backward."""
    model = built("llama").eval()
    ids = batch()["input_ids"][:1]
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 3, 4]])
    model.zero_grad()
    model(input_ids=ids, position_ids=positions, use_cache=False).logits.square().sum().backward()
    packed = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.zero_grad()
    sum(model(input_ids=part).logits.square().sum() for part in (ids[:, :4], ids[:, 4:])).backward()
    alone = {name: weight.grad for name, weight in model.named_parameters()}
    assert apart(packed, alone) < 1e-5


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_16_bit_gradients(dtype):
    """Against float32, the gradients of a 16-bit model err no more than twice as much as with the model's own 16-bit
    code.
    """
    inputs = batch()
    exact = learned(built("llama"), inputs)
    model = built("llama").to(dtype)
    found = learned(model, inputs)
    model.set_attn_implementation("eager")
    assert apart(found, exact) <= 2 * apart(learned(model, inputs), exact)


@pytest.mark.parametrize("trains", [True, False])
def test_autocast(trains):
    """Inside autocast queries of float32 and values of bfloat16 meet in bfloat16, as in torch's own attention."""
    model, inputs = built("llama"), batch()
    model.set_attn_implementation("sdpa")
    with torch.set_grad_enabled(trains):
        exact = model(**inputs).logits
        with torch.autocast("cpu", torch.bfloat16):
            usual = model(**inputs).logits
            model.set_attn_implementation("regard")
            with hf.record(model) as calls:
                found = model(**inputs).logits
    assert {call.q.dtype.name for call in calls} == {"bfloat16"}
    assert (found - exact).abs().max() <= 2 * (usual - exact).abs().max()
    if trains:
        found.float().square().mean().backward()
        assert all(weight.grad is not None and weight.grad.isfinite().all() for weight in model.parameters())


def test_weights_on_request_have_gradients():
    """A loss on the weights themselves (output_attentions) reaches the parameters as it does through eager's."""
    model, inputs = built("llama").train(), batch()
    del inputs["labels"]

    def gradients(implementation):
        model.set_attn_implementation(implementation)
        model.zero_grad()
        sum(weights.square().sum() for weights in model(**inputs, output_attentions=True).attentions).backward()
        return {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}

    assert apart(gradients("regard"), gradients("eager")) < 1e-5


@pytest.mark.parametrize("name", ["llama", "t5, learned position bias"])
def test_beam_search(name):
    """Beams, whose caches are reordered at every step, find eager's tokens."""
    model, inputs = built(name).eval(), batch("left")
    del inputs["labels"]
    found = []
    for implementation in ("regard", "eager"):
        model.set_attn_implementation(implementation)
        found.append(
            model.generate(**inputs, max_new_tokens=8, num_beams=3, do_sample=False, pad_token_id=0, eos_token_id=None)
        )
    assert torch.equal(*found) and found[0].shape[1] >= 8


@pytest.mark.sweep
@pytest.mark.slow
def test_a_compiled_model():
    """torch.compile of a model runs attention between its graphs, padding and all, and gives what the model gives."""
    model, inputs = built("llama", layers=1), batch()
    torch.compiler.reset()
    with hf.record(model) as calls:
        want = model(**inputs)
        found = torch.compile(model, backend="aot_eager")(**inputs)
    assert torch.equal(found.logits, want.logits) and len(calls) == 2
    weight = model.model.layers[0].self_attn.q_proj.weight
    ours, theirs = (torch.autograd.grad(each.loss, weight)[0] for each in (found, want))
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max()


def test_a_few_steps_lead_where_eager_leads():
    """Ten steps of Adam on regard and on eager: the same losses."""
    losses = []
    for implementation in ("regard", "eager"):
        model = built("llama").train()
        model.set_attn_implementation(implementation)
        steps = torch.optim.AdamW(model.parameters(), 1e-3)
        losses.append([])
        for _ in range(10):
            steps.zero_grad()
            loss = model(**batch()).loss
            loss.backward()
            steps.step()
            losses[-1].append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[0][-1] < losses[0][0]
