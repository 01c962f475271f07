"""Healthy attention of unusual design: no alarm, whatever it is; and the faults that look like it are still found."""

import random

import pytest
import torch
from torch.nn import functional

from bench.audit_alarms.__main__ import healthy
from bench.audit_alarms.written import Attention, Differential, LowerRight, Pooled, PreviousToken, TalkingHeads
from regard.audits import audit
from regard.torch.hf.tiny_models import tiny_model


@pytest.mark.one_in(4)
@pytest.mark.parametrize("number", [n for n in range(1000, 1048) if n % 3])
def test_random_healthy_models(number):
    """Models of `bench.audit_alarms`, which are not held back."""
    _, model, arguments = healthy(number)

    found = audit(model, **arguments)

    assert found.healthy, str(found)


@pytest.mark.parametrize("kind", [TalkingHeads, Differential])
def test_weights_that_are_combined_after_the_softmax(kind):
    """They may be negative and need not sum to 1; keys that are masked have none all the same."""
    for seed in range(4):
        torch.manual_seed(seed)
        heads, depth = random.Random(seed).choice([(2, 4), (4, 8)])
        found = audit(kind(heads, depth, fused=False).eval(), inputs=torch.randn(1, 13, heads * depth), causal=True)

        assert found.healthy, str(found)
        assert "weights" in {each.check for each in found.passed}


def test_weights_that_are_only_scaled_or_masked_after_the_softmax_are_faulty():
    """One softmax whose weights no longer sum to 1 is no combination."""

    class Masked(Attention):
        def mix(self, weights):
            return weights * (torch.arange(weights.shape[-1]) % 3 > 0)

    torch.manual_seed(0)
    found = audit(Masked(2, 8, fused=False).eval(), inputs=torch.randn(1, 13, 16), checks=["weights"])

    assert [each.severity for each in found.findings] == ["fault"], str(found)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_causal_biases_of_torch(rows):
    """torch's biases are tensors without contents; their diagonal is recorded, and every check runs."""
    torch.manual_seed(rows)
    model = LowerRight(2, 8).eval()
    model.rows = rows
    found = audit(model, inputs=torch.randn(1, 13, 16))

    assert found.healthy and {"determinism", "mask"} <= {each.check for each in found.passed}, str(found)


@pytest.mark.parametrize("strength", [30.0, 200.0])
def test_a_clean_previous_token_head_is_not_saturated(strength):
    """It selects by position; random q and k of the same size are, and the scale is blamed only where it is 1."""

    def attend(scale):
        def call(q, k, v):
            return functional.scaled_dot_product_attention(q, k, v, scale=scale)

        return call

    found = audit(PreviousToken(True, strength).eval(), inputs=torch.randn(1, 17, 8), checks=["saturated"])
    assert [each.check for each in found.passed] == ["saturated"], str(found)

    parts = tuple(strength * part for part in torch.randn(3, 1, 2, 17, 16, generator=torch.Generator().manual_seed(0)))
    usual, missing = (audit(attend(scale), inputs=parts, checks=["saturated"]) for scale in (None, 1.0))
    assert [each.severity for each in (*usual.findings, *missing.findings)] == ["note", "note"]
    assert "may be missing" not in usual.findings[0].cause and "may be missing" in missing.findings[0].cause


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_scale_that_the_configuration_asks_for(implementation):
    """Scales that are divided by the number of the layer; another factor in one layer is still found."""
    torch.manual_seed(0)
    model = tiny_model("gpt2", scale_attn_by_inverse_layer_idx=True)
    model.set_attn_implementation(implementation)
    assert audit(model, checks=["scale"]).healthy

    model.transformer.h[1].attn.scaling /= 2  # a quarter of the usual scale instead of half

    assert [each.call for each in audit(model, checks=["scale"]).findings] == [1]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("jamba", {"sliding_window": 4}),
        ("qwen2", {"sliding_window": 4, "use_sliding_window": False}),
        ("qwen2_moe", {"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 1}),
    ],
)
def test_windows_that_layers_do_not_use(name, settings):
    """A configuration keeps a window for layers that attend to all earlier keys."""
    torch.manual_seed(0)

    found = audit(tiny_model(name, **settings), checks=["mask"])

    assert found.healthy, str(found)


@pytest.mark.parametrize("chosen", ["by a switch", "by an object"])
def test_layers_of_linear_attention_between_others(chosen):
    """One class may hold both; a layer that is like the recorded ones and has no call is still reported."""

    class Linear:
        def __call__(self, q, k, v):
            return torch.einsum("bhqd,bhkd,bhke->bhqe", q.softmax(-1), k.softmax(-2), v)

    class Softmax:
        def __call__(self, q, k, v):
            return functional.scaled_dot_product_attention(q, k, v)

    class Either(Attention):
        def __init__(self, linear):
            super().__init__(2, 8)
            if chosen == "by a switch":
                self.linear = linear
            else:
                self.processor = Linear() if linear else Softmax()

        def attend(self, q, k, v):
            compute = Linear() if getattr(self, "linear", False) else getattr(self, "processor", Softmax())
            return compute(q, k, v)

    torch.manual_seed(0)
    layers = [Either(number % 2 == 0) for number in range(4)]
    model, x = torch.nn.Sequential(*layers).eval(), torch.randn(1, 13, 16)

    found = audit(model, inputs=x, checks=["arrived"])

    assert found.healthy and len(found.passed) == 1, str(found)

    layers[3].forward = lambda x: layers[3].o(x)
    found = audit(model, inputs=x, checks=["arrived"])

    assert [each.numbers["layers"] for each in found.findings] == [["3"]], str(found)


@pytest.mark.parametrize("keys", [[4, 8], ["loss", 8], [(1, 2), None]])
def test_outputs_by_keys_that_are_no_strings(keys):
    """A model may return a dict by horizon, scale or class."""

    class Keyed(Attention):
        def forward(self, x):
            return {key: super(Keyed, self).forward(x) for key in keys}

    found = audit(Keyed(2, 8).eval(), inputs=torch.randn(1, 13, 16))

    assert found.healthy and "future-leak" in {each.check for each in found.passed}, str(found)


@pytest.mark.parametrize("added", ["the scores before", "a bias"])
def test_scores_that_are_carried_on(added):
    """Residual attention adds the scores of the layer before, which the first layer has not. A bias that the first
    layer lacks is reported.
    """

    class Carrying(Attention):
        def forward(self, x, more=0):
            q, k, v = self.project(x)
            scores = q @ k.mT * self.depth**-0.5 + more
            out = scores.masked_fill(~self.allowed(q.shape[2]), -torch.inf).softmax(-1) @ v
            return x + self.o(out.transpose(1, 2).flatten(2)), scores

    class Layers(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.bias = torch.nn.ModuleList(Carrying(2, 8) for _ in range(3)), torch.randn(2, 13, 13)

        def forward(self, x):
            more = 0
            for layer in self.layers:
                x, scores = layer(x, more)
                more = scores if added == "the scores before" else self.bias
            return x

    torch.manual_seed(0)
    found = audit(Layers().eval(), inputs=torch.randn(1, 13, 16), causal=True, checks=["bias", "softmax"])

    assert [(each.check, each.call) for each in found.findings] == ([("bias", 0)] if added == "a bias" else []), str(
        found
    )
    assert len(found.passed) == 2 - len(found.findings)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_inside_a_model(layout):
    """The effect of rounding is measured through them, too."""

    class Inside(Attention):
        def forward(self, x):
            rows = torch.nested.nested_tensor(list(x.unbind()), layout=layout)
            return super().forward(self.q(rows).to_padded_tensor(0.0, (*x.shape[:2], x.shape[2])))

    torch.manual_seed(0)
    for model in (Inside(2, 8).eval(), Inside(2, 8, causal=False).eval()):
        found = audit(model, inputs=torch.randn(1, 13, 16), causal=True)

        assert found.healthy == model.is_causal, str(found)
        assert {"determinism", "batch-dependence"} <= {each.check for each in found.passed}


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("masked", ["given", "padding given", "not given"])
@pytest.mark.parametrize("causal", [True, False])
def test_as_many_classes_as_tokens(causal, masked, pooling):
    """The width of a classifier's output is no number of positions, whatever its size."""
    torch.manual_seed(0)
    module = Pooled(2, 8, causal=causal)
    module.pooling, module.o = pooling, torch.nn.Linear(16, 13)
    inputs = {"x": torch.randn(1, 13, 16)}
    if masked != "not given":
        inputs["attention_mask"] = (torch.arange(13) < (11 if masked == "padding given" else 13)).long()[None]

    found = audit(module.eval(), inputs=inputs, causal=causal)

    assert found.healthy and {"padding-leak", "batch-dependence"} <= {each.check for each in found.passed}, str(found)
    assert "future-leak" in {each.check for each in found.skipped}


@pytest.mark.parametrize("state", ["a name", "weights that it keeps"])
def test_layers_that_hold_something_of_their_own(state):
    """What differs between layers that compute the same does not hide one that is skipped."""

    class Holding(Attention):
        def __init__(self, number):
            super().__init__(2, 8)
            self.name = f"layer.{number}" if state == "a name" else "layer"
            self.kept = None

        def attend(self, q, k, v):
            self.kept = q if state == "weights that it keeps" else None
            return super().attend(q, k, v)

    torch.manual_seed(0)
    layers = [Holding(number) for number in range(4)]
    layers[3].forward = lambda x: layers[3].o(x)

    found = audit(torch.nn.Sequential(*layers).eval(), inputs=torch.randn(1, 13, 16), checks=["arrived"])

    assert [each.numbers["layers"] for each in found.findings] == [["3"]], str(found)


@pytest.mark.parametrize("rounded", ["padded to blocks", "halved and doubled"])
def test_rows_of_models_that_round_their_length_up(rounded):
    """As many rows for 12 positions as for 11: they are rows all the same, and a leak is found."""

    class Rounding(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Attention(2, 8, causal=False)
            self.down = torch.nn.Conv1d(16, 16, 3, 2, 1)
            self.up = torch.nn.ConvTranspose1d(16, 16, 2, 2)

        def forward(self, x):
            if rounded == "padded to blocks":
                return self.inner(functional.pad(x, (0, 0, 0, -x.shape[1] % 4)))
            return self.up(self.inner(self.down(x.mT).mT).mT).mT

    torch.manual_seed(0)
    found = audit(Rounding().eval(), inputs=torch.randn(1, 12, 16), causal=True, checks=["future-leak"])

    assert [each.check for each in found.findings] == ["future-leak"], str(found)
