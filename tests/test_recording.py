"""Recording: every call of a running model becomes data, and its weights are those that the model used."""

import functools

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="models run on torch")
T = pytest.importorskip("transformers", reason="the models come from transformers")

from test_recorder import MODELS  # noqa: E402

import regard as rg  # noqa: E402
from regard.lens.look import look  # noqa: E402
from regard.torch import hf  # noqa: E402

ALL = MODELS | {
    "gpt2": lambda: T.GPT2LMHeadModel(T.GPT2Config(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64)),
    "bloom": lambda: T.BloomForCausalLM(T.BloomConfig(vocab_size=64, hidden_size=32, n_layer=2, n_head=4)),
    "gptj": lambda: T.GPTJForCausalLM(T.GPTJConfig(vocab_size=64, n_embd=32, n_layer=2, n_head=4, n_positions=64, rotary_dim=4)),
    "vit": lambda: T.ViTModel(T.ViTConfig(hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                          image_size=32, patch_size=8)),
}  # fmt: skip
IDS = torch.randint(3, 64, (2, 7), generator=torch.Generator().manual_seed(5))
LEFT = torch.ones_like(IDS)
LEFT[1, :2] = 0
OWN = ("bloom", "gptj")  # these attend in code of their own


def built(name: str, implementation: str):
    hf.register()
    torch.manual_seed(0)
    model = ALL[name]().eval()
    model.config._experts_implementation = "eager"  # the fast one knows no float64
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(4 if weight.ndim > 1 else 1)  # so that attention is far from even
    if name not in OWN:
        model.set_attn_implementation(implementation)
    return model


def inputs_of(model) -> dict:
    if model.main_input_name == "pixel_values":
        return {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(6))}
    inputs = {"input_ids": IDS, "attention_mask": LEFT}
    return inputs | ({"decoder_input_ids": IDS.flip(1)[:, :5]} if model.config.is_encoder_decoder else {})


@functools.cache
def eager_weights(name: str, double: bool = False) -> list[np.ndarray]:
    """What the models' own code returns for the whole batch, in the order in which the calls are made."""
    model = built(name, "eager")
    inputs = inputs_of(model)
    if double:
        model, inputs = (
            model.double(),
            {key: part.double() if part.is_floating_point() else part for key, part in inputs.items()},
        )
    with torch.no_grad():
        out = model(**inputs, output_attentions=True)
    if not model.config.is_encoder_decoder:
        return [part.numpy() for part in out.attentions]
    decoder = zip(out.decoder_attentions, out.cross_attentions, strict=True)
    return [part.numpy() for part in (*out.encoder_attentions, *(part for pair in decoder for part in pair))]


def agree(call, exact, usual: float):
    """Equal within ten times the usual error, but for rows that may attend nothing: 0 here, an average in the models' own code."""
    seeing = call.allowed().any(-1, keepdims=True)
    np.testing.assert_allclose(np.where(seeing, call.weights(), 0), np.where(seeing, exact, 0), rtol=0, atol=10 * usual + 1e-7)
    assert seeing.any()


def implementations(name: str) -> list[str]:
    return ["eager"] if name in OWN else ["regard", "eager"] if name in ("gemma2", "gpt-oss") else ["regard", "sdpa", "eager"]


@pytest.mark.parametrize(("name", "implementation"), [(name, each) for name in ALL for each in implementations(name)])
def test_the_weights_of_a_run_are_those_of_the_model(name, implementation):
    """Call by call, on every implementation, the recorded weights are those that the model's own code returns."""
    model = built(name, implementation)
    exact, double = eager_weights(name), eager_weights(name, True)
    for entry in (0, 1):
        run = look(model, inputs=inputs_of(model), entry=entry)
        assert (len(run.calls), run.facts["left_out"]) == (len(exact), [])
        for call, theirs, truth in zip(run.calls, exact, double, strict=True):
            usual = np.nanmax(np.abs(theirs - truth))
            agree(call, theirs[entry], usual)
            assert call.notes["difference"] < 100 * np.finfo(np.float32).eps
            assert call.given is None


class Toy(torch.nn.Module):
    """Two heads of one layer, in whatever way `attend` does it."""

    def __init__(self, attend, heads=2, width=16):
        super().__init__()
        torch.manual_seed(1)
        self.attend, self.num_heads = attend, heads
        self.projections = torch.nn.Linear(width, 3 * width)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in self.projections(x).chunk(3, -1))
        return self.attend(q, k, v).transpose(1, 2).flatten(2)


def tril(n: int) -> torch.Tensor:
    return torch.ones(n, n).tril().bool()


def plain(q, k, v):
    return (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1) @ v


def masked(q, k, v):
    s = torch.matmul(q, k.mT).mul(q.shape[-1] ** -0.5)
    return s.masked_fill(~tril(q.shape[2]), float("-inf")).softmax(-1) @ v


def capped(q, k, v):
    s = torch.einsum("bhqd,bhkd->bhqk", q, k) * 0.25
    s = 5 * torch.tanh(s / 5)
    return torch.softmax(torch.where(tril(q.shape[2]), s, torch.tensor(-1e30)), dim=-1) @ v


def sloped(q, k, v):
    """ALiBi, in batched products."""
    B, H, n, D = q.shape
    bias = -torch.arange(1, H + 1)[:, None, None] * (torch.arange(n)[:, None] - torch.arange(n)).abs() / 4
    bias = bias.repeat(B, 1, 1) + torch.zeros(n, n).masked_fill(~tril(n), float("-inf"))
    s = torch.baddbmm(bias, q.reshape(-1, n, D), k.reshape(-1, n, D).transpose(1, 2), beta=1.0, alpha=D**-0.5)
    return torch.bmm(torch.softmax(s, -1), v.reshape(-1, n, D)).view(B, H, n, D)


def clamped(q, k, v):
    """A step that has no rule."""
    return (q @ k.transpose(-2, -1)).clamp(-0.5, 0.5).softmax(-1) @ v


def renormalised(q, k, v):
    """Weights that are changed after the softmax."""
    p = (q @ k.transpose(-2, -1)).softmax(-1) * tril(q.shape[2])
    return p / p.sum(-1, keepdim=True) @ v


def sdpa(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3)


def sdpa_biased(q, k, v):
    n = q.shape[2]
    bias = torch.linspace(-1, 1, q.shape[0] * n * n).view(q.shape[0], 1, n, n)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=bias)


def of_regard(q, k, v):
    return rg.attention(q, k, v, mask=rg.causal() & rg.window(3), score=rg.softcap(2.0))


def weights_of(attend, module, x) -> np.ndarray:
    """The weights by the unit vectors as values: whatever the module does with v, it does with them."""

    def ones(q, k, v):
        n = k.shape[2]
        return attend(q, k, torch.eye(n).expand(*k.shape[:2], n, n)) if attend is not sloped else _unit(q, k)

    def _unit(q, k):
        n, D = q.shape[2:]
        return torch.cat([attend(q, k, torch.eye(n)[:, i : i + D].expand(*k.shape[:2], n, D)) for i in range(0, n, D)], -1)

    with torch.no_grad():
        q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in module.projections(x).chunk(3, -1))
        return ones(q, k, v).numpy()


RULES = {
    plain: (None, None), masked: ("key <= query", None), capped: ("key <= query", "5.0 * tanh(score / 5.0)"),
    sloped: ("key <= query", "score + bias[head, key - query + 7]"), clamped: None, renormalised: None, sdpa: ("key <= query", None),
    sdpa_biased: (None, "score + bias[query, key]"), of_regard: ("(key <= query) & ((query - key < 3) & (key - query <= 0))", "2.0 * tanh(score / 2.0)"),
}  # fmt: skip


@pytest.mark.parametrize("attend", RULES, ids=lambda attend: attend.__name__)
def test_any_module_is_recorded_with_its_rules(attend):
    """However a module attends, its run has the weights that it used: by its rules, or as they are where a step has no rule."""
    module, x = Toy(attend), torch.randn(3, 8, 16, generator=torch.Generator().manual_seed(2)) * 3
    exact = weights_of(attend, module, x)
    for entry in (0, 2):
        (call,) = look(module, inputs=x, entry=entry).calls
        np.testing.assert_allclose(call.weights(), exact[entry], atol=1e-6)
        assert call.notes["difference"] < 1e-5
        assert np.array_equal(call.x, x[entry].numpy())
        assert (call.given is None) == (RULES[attend] is not None)
        if RULES[attend] is not None:
            assert tuple(None if rule is None else str(rule) for rule in (call.mask, call.score)) == RULES[attend]
