"""Attention as tutorials and people write it: however the scale is called and applied, a healthy module is silent, and
a wrong scale is found with advice that corrects it.
"""

import math

import pytest
import torch
from torch import nn

import regard as rg

WIDTH, HEADS = 64, 4
DEPTH = WIDTH // HEADS
ROOT = math.sqrt(DEPTH)


class Module(nn.Module):
    """Three projections and a causal mask; each tutorial sets its own scores, (module, q, k) -> scores, and its own
    attributes.
    """

    def __init__(self, scores, norm=None, **attributes):
        super().__init__()
        self.scores, self.norm = scores, norm or nn.Identity()
        self.to_q, self.to_k, self.to_v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x):
        y = self.norm(x)
        q, k, v = (part(y).unflatten(2, (HEADS, DEPTH)).transpose(1, 2) for part in (self.to_q, self.to_k, self.to_v))
        mask = torch.ones(x.shape[1], x.shape[1]).tril()
        scores = self.scores(self, q, k).masked_fill(mask == 0, -1e9)
        return x + torch.matmul(nn.functional.softmax(scores, dim=-1), v).transpose(1, 2).flatten(2)


def annotated(module, q, k):
    return torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(q.size(-1))


def divided(module, q, k):
    return torch.matmul(q, k.permute(0, 1, 3, 2)) / module.scale


def divided_twice(module, q, k):
    return divided(module, q, k) / module.scale


def multiplied(module, q, k):
    return torch.einsum("bhid,bhjd->bhij", q, k) * module.scale


def tempered(module, q, k):
    return torch.matmul(q / module.temperature, k.transpose(2, 3))


def prescaled(module, q, k):
    return (q * module.scale) @ k.transpose(-2, -1)


def keys_scaled(module, q, k):
    return q @ (k / module.scale).transpose(-2, -1)


def both_scaled(module, q, k):
    return (q * module.scale) @ (k * module.scale).transpose(-2, -1)


def normalized(module, q, k):
    return divided(module, *(nn.functional.normalize(part, dim=-1) for part in (q, k)))


def unscaled(module, q, k):
    return q @ k.transpose(-2, -1)


def biased(module, q, k):
    return unscaled(module, q, k) + torch.eye(q.shape[2])


HEALTHY = {
    "annotated transformer": (annotated, {}),
    "divisor": (divided, {"scale": ROOT}),
    "divisor that is a tensor": (divided, {"scale": torch.sqrt(torch.FloatTensor([DEPTH]))}),
    "divisor in a module with a configuration": (divided, {"scale": ROOT, "config": {"heads": HEADS}}),
    "factor": (multiplied, {"scale": DEPTH**-0.5}),
    "learned temperature": (normalized, {"scale": nn.Parameter(torch.tensor(0.07))}),
    "small divisor of normalized vectors": (normalized, {"scale": 0.07}),
    "learned divisor": (divided, {"scale": nn.Parameter(torch.tensor(0.9 * ROOT))}),
    "q scaled": (prescaled, {"scale": DEPTH**-0.5}),
    "k scaled": (keys_scaled, {"scale": ROOT, "norm": nn.LayerNorm(WIDTH)}),
    "both scaled": (both_scaled, {"scale": DEPTH**-0.25}),
    "q divided": (tempered, {"temperature": ROOT, "scale": ROOT}),
    "the scale of something else": (annotated, {"scaling": 2.0}),
    "a divisor of all features": (divided, {"scale": math.sqrt(WIDTH + 36)}),
}
WRONG = {
    "multiplied by the divisor": (multiplied, {"scale": ROOT}, "inverted"),
    "divided by the factor": (divided, {"scale": DEPTH**-0.5}, "inverted"),
    "divided by d": (divided, {"scale": float(DEPTH)}, "1/D instead of 1/√D"),
    "not scaled": (divided, {"scale": torch.ones(1)}, "missing"),
    "half": (divided, {"scale": 2 * ROOT}, "halved"),
    "a divisor that is not used": (unscaled, {"scale": ROOT}, "missing"),
    "a divisor that is used twice": (divided_twice, {"scale": ROOT}, "twice"),
    "a factor that is not used": (unscaled, {"scale": DEPTH**-0.5}, "missing"),
}


def found(*modules):
    return rg.audit(nn.Sequential(*modules).eval(), inputs=torch.randn(1, 24, WIDTH), checks=["scale"]).findings


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_module_is_silent(name):
    """No finding about the scale, whatever its attribute is called and however it is applied."""
    scores, attributes = HEALTHY[name]

    assert found(Module(scores, **attributes)) == ()


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_scale_is_found_and_the_advice_is_right(name):
    """The finding names the mistake, and says to multiply q·k by 1/√d."""
    scores, attributes, words = WRONG[name]
    (finding,) = found(Module(scores, **attributes))

    assert finding.check == "scale" and finding.severity in ("fault", "warning")
    assert words in finding.cause and finding.fix.startswith(f"multiply q·k by {DEPTH**-0.5:.6g}, once")


@pytest.mark.parametrize("norm", [None, nn.LayerNorm(WIDTH)], ids=["no norm", "norm"])
def test_a_scale_that_is_missing_in_every_layer_is_a_fault(norm):
    """Also behind a norm, as long as q and k have none themselves; T5 has no scale anywhere, but biases in layers."""
    missing, other = Module(unscaled, norm=norm), Module(unscaled, norm=norm)

    assert [each.severity for each in found(missing, other)] == ["fault"] * 2
    assert [each.severity for each in found(Module(biased, norm=norm), other)] == ["warning", "note"]
