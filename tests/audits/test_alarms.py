"""Healthy attention of unusual design: no alarm, whatever it is; and the faults that look like it are still found."""

import functools

import pytest
import torch
from torch.nn import functional

from bench.audit_alarms import __main__ as alarms
from bench.audit_alarms.written import Attention, Differential, LowerRight, Pooled, PreviousToken, TalkingHeads
from regard.audits import audit
from regard.torch.hf.tiny_models import tiny_model
from tests.audits.small_audits import audited, checked, healthy
from tests.support.tensors import normal

X = normal(1, 13, 16)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("number", [n for n in range(1000, 1048) if n % 3])
def test_random_healthy_models(number):
    """Models of `bench.audit_alarms`, which are not held back."""
    _, model, arguments = alarms.healthy(number)

    healthy(audit(model, **arguments))


@pytest.mark.parametrize("kind", [TalkingHeads, Differential])
def test_weights_that_are_combined_after_the_softmax(kind):
    """They may be negative and need not sum to 1; keys that are masked have none all the same."""
    for depth in (4, 8):
        model, x = kind(2, depth, fused=False), torch.randn(1, 13, 2 * depth)
        healthy(audited(model, x, checks=None), "weights")


class First(Attention):
    """Its output is that of the first token, which sees itself alone, so that queries and keys have no effect."""

    def forward(self, x):
        return super().forward(x)[:, 0]


def test_an_output_of_tokens_that_see_a_single_key():
    """Projections of queries and keys that have no effect there are read all the same."""
    healthy(audited(First(2, 8, fused=False), X, None, ["projections"]), "projections")


def test_weights_that_are_only_scaled_or_masked_after_the_softmax_are_faulty():
    """One softmax whose weights no longer sum to 1 is no combination."""

    class Masked(Attention):
        def mix(self, weights):
            return weights * (torch.arange(weights.shape[-1]) % 3 > 0)

    found = audited(Masked(2, 8, fused=False), X, None, ["weights"])

    assert [each.severity for each in found.findings] == ["fault"], str(found)


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_causal_biases_of_torch(rows):
    """torch's biases are tensors without contents; their diagonal is recorded, and every check runs."""
    model = LowerRight(2, 8).eval()
    model.rows = rows

    healthy(audit(model, inputs=X), "determinism", "mask")


@pytest.mark.parametrize("strength", [30.0, 200.0])
def test_a_clean_previous_token_head_is_not_saturated(strength):
    """It selects by position; random q and k of the same size are, with any scale."""
    healthy(audited(PreviousToken(True, strength), torch.randn(1, 17, 8), None, ["saturated"]), "saturated")

    for scale in (None, 1.0):
        attend = functools.partial(functional.scaled_dot_product_attention, scale=scale)
        (note,) = audit(attend, inputs=(*(strength * torch.randn(3, 1, 2, 17, 16)),), checks=["saturated"]).findings
        assert note.severity == "note"


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_a_scale_that_the_configuration_asks_for(implementation):
    """Scales that are divided by the number of the layer; another factor in one layer is still found."""
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
    assert audit(tiny_model(name, **settings), checks=["mask"]).healthy


def linear(q, k, v):
    """Linear attention."""
    return torch.einsum("bhqd,bhkd,bhke->bhqe", q.softmax(-1), k.softmax(-2), v)


class Switched(Attention):
    """Linear attention by an attribute."""

    def __init__(self, chosen):
        super().__init__(2, 8)
        self.linear = chosen

    def attend(self, q, k, v):
        return linear(q, k, v) if self.linear else super().attend(q, k, v)


class Processed(Attention):
    """Linear attention by an object of another class."""

    class Softmax:
        attend = staticmethod(functional.scaled_dot_product_attention)

    class Linear:
        attend = staticmethod(linear)

    def __init__(self, chosen):
        super().__init__(2, 8)
        self.processor = self.Linear() if chosen else self.Softmax()

    def attend(self, q, k, v):
        return self.processor.attend(q, k, v)


class Holding(Attention):
    """It keeps what differs from call to call and from layer to layer."""

    def __init__(self, number):
        super().__init__(2, 8)
        self.name, self.kept = f"layer.{number}", None

    def attend(self, q, k, v):
        self.kept = q
        return super().attend(q, k, v)


@pytest.mark.parametrize(
    ("kind", "given"),
    [(Switched, (True, False, True, False)), (Processed, (True, False, True, False)), (Holding, range(4))],
    ids=str,
)
def test_a_skipped_layer_is_found_among_layers_that_differ(kind, given):
    """One class may hold layers of linear attention, too, and what they hold; a layer that is like the recorded ones
    and has no call is still reported.
    """
    layers = list(map(kind, given))
    model = torch.nn.Sequential(*layers)

    healthy(audited(model, X, None, ["arrived"]), "arrived")

    layers[3].forward = lambda x: layers[3].o(x)
    (found,) = audit(model, inputs=X, checks=["arrived"]).findings
    assert found.numbers["layers"] == ["3"]


@pytest.mark.parametrize("keys", [[4, 8], ["loss", 8], [(1, 2), None]])
def test_outputs_by_keys_that_are_no_strings(keys):
    """A model may return a dict by horizon, scale or class."""

    class Keyed(Attention):
        def forward(self, x):
            return {key: super(Keyed, self).forward(x) for key in keys}

    healthy(audit(Keyed(2, 8).eval(), inputs=X), "future-leak")


@pytest.mark.parametrize("added", ["the scores before", "a bias"])
def test_scores_that_are_carried_on(added):
    """Residual attention adds the scores of the layer before, which the first layer has not. A bias that the first
    layer lacks is reported.
    """

    class Carrying(Attention):
        def forward(self, given):
            x, more = given
            q, k, v = self.project(x)
            scores = q @ k.mT * self.depth**-0.5 + more
            out = scores.masked_fill(~self.allowed(q.shape[2]), -torch.inf).softmax(-1) @ v
            return x + self.o(out.transpose(1, 2).flatten(2)), scores if added == "the scores before" else bias

    bias = torch.randn(2, 13, 13)
    layers = torch.nn.Sequential(*(Carrying(2, 8) for _ in range(3))).eval()
    found = audit(lambda x: layers((x, 0))[0], inputs=X, causal=True, checks=["bias", "softmax"])

    assert [(each.check, each.call) for each in found.findings] == [("bias", 0)] * (added == "a bias"), str(found)
    assert len(found.passed) == 2 - len(found.findings)


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors_inside_a_model(layout):
    """The effect of rounding is measured through them, too."""

    class Inside(Attention):
        def forward(self, x):
            rows = torch.nested.nested_tensor(list(x.unbind()), layout=layout)
            return super().forward(self.q(rows).to_padded_tensor(0.0, (*x.shape[:2], x.shape[2])))

    for causal in (True, False):
        found = audit(Inside(2, 8, causal=causal).eval(), inputs=X, causal=True)

        assert found.healthy == causal, str(found)
        assert {"determinism", "batch-dependence"} <= checked(found.passed)


@pytest.mark.parametrize("pooling", ["last", "mean"])
@pytest.mark.parametrize("masked", ["given", "padding given", "not given"])
@pytest.mark.parametrize("causal", [True, False])
def test_as_many_classes_as_tokens(causal, masked, pooling):
    """The width of a classifier's output is no number of positions, whatever its size."""
    module = Pooled(2, 8, causal=causal)
    module.pooling, module.o = pooling, torch.nn.Linear(16, 13)
    inputs = {"x": X}
    if masked != "not given":
        inputs["attention_mask"] = (torch.arange(13) < (11 if masked == "padding given" else 13)).long()[None]

    found = audit(module.eval(), inputs=inputs, causal=causal)

    healthy(found, "padding-leak", "batch-dependence")
    assert "future-leak" in checked(found.skipped)


def test_rows_of_models_that_round_their_length_up():
    """As many rows for 12 positions as for 11: they are rows all the same, and a leak is found."""

    class Rounding(Attention):
        def forward(self, x):
            return super().forward(functional.pad(x, (0, 0, 0, -x.shape[1] % 4)))

    found = audited(Rounding(2, 8, causal=False), X[:, :12], checks=["future-leak"])

    assert checked(found.findings) == {"future-leak"}, str(found)
