"""Modules written by hand, which declare nothing: their mistakes are named, and their healthy twins are silent."""

import pytest
import torch

import regard as rg
from tests.support.runs import alarms, checks, sdpa


class ByHand(torch.nn.Module):
    """Attention written by hand, which declares nothing."""

    def __init__(self, attend):
        super().__init__()
        self.qkv, self.attend = torch.nn.Linear(32, 96), attend

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (2, 16)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return self.attend(q, k, v).transpose(1, 2).flatten(2)


def weighted(part):
    return torch.nn.functional.rms_norm(part, (16,), torch.linspace(0.5, 1.5, 16))


BY_HAND = {
    "healthy": (lambda q, k, v: sdpa(q, k, v, is_causal=True), None),
    "normed q and k": (
        lambda q, k, v: sdpa(*(torch.nn.functional.normalize(part, dim=-1) for part in (q, k)), v, scale=1.0),
        None,
    ),
    "q scaled before": (lambda q, k, v: sdpa(q / 4, k, v, scale=1.0), None),
    "q and k scaled before": (lambda q, k, v: sdpa(q / 2, k / 2, v, scale=1.0), None),
    "q scaled before, written out": (lambda q, k, v: torch.softmax((q / 4) @ k.mT, -1) @ v, None),
    "q and k normed with weights": (lambda q, k, v: sdpa(weighted(q), weighted(k), v, scale=1.0), None),
    "scaled before and by the call": (lambda q, k, v: sdpa(q / 4, k, v), ("scale", "warning")),
    "no scale": (lambda q, k, v: sdpa(q, k, v, scale=1.0), ("scale", "fault")),
    "inverted scale": (lambda q, k, v: sdpa(q, k, v, scale=4.0), ("scale", "warning")),
    "scaled twice": (lambda q, k, v: sdpa(q, k, v, scale=1 / 16), ("scale", "warning")),
    "top left": (lambda q, k, v: sdpa(q[:, :, -3:], k, v, is_causal=True), ("alignment", "fault")),
    "booleans added": (
        lambda q, k, v: torch.softmax(q @ k.mT / 4 + torch.ones(12, 12).tril().bool(), -1) @ v,
        ("mask", "fault"),
    ),
    "along the queries": (lambda q, k, v: torch.softmax(q @ k.mT / 4, -2) @ v, ("weights", "fault")),
    "dropout left on": (
        lambda q, k, v: torch.dropout(torch.softmax(q @ k.mT / 4, -1), 0.3, True) @ v,
        ("weights", "fault"),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_modules_written_by_hand(name):
    """Mistakes in a plain torch module that declares nothing are named, and its healthy twins are silent."""
    from regard.lens.look import look

    attend, expected = BY_HAND[name]
    torch.manual_seed(0)
    module = ByHand(attend).eval()

    found = alarms(checks(look(module, inputs=torch.randn(1, 12, 32)), module))

    assert [(finding.check, finding.severity) for finding in found] == ([] if expected is None else [expected])


@pytest.mark.parametrize("shown", [False, True], ids=["SDPA", "weights are returned"])
def test_the_attention_of_torch_is_silent(shown):
    """torch.nn.MultiheadAttention, which scales q itself where it returns weights, is healthy."""

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(32, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=shown)[0]

    torch.manual_seed(0)
    found = rg.audit(Encoder().eval(), inputs=torch.randn(1, 12, 32), checks=["scale"])

    assert not found.findings and [each.check for each in found.passed] == ["scale"], str(found)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_softmax_of_few_bits_is_named(kind):
    """Weights that are rounded to 16 bits in a module of 32 are a note that says so, not a fault with another cause."""
    torch.manual_seed(0)
    dtype = getattr(torch, kind)
    module = ByHand(lambda q, k, v: torch.softmax((q @ k.mT / 4).to(dtype), -1).float() @ v).eval()

    found = rg.audit(module, inputs=torch.randn(1, 200, 32), checks=["weights", "output", "softmax"])

    assert found.healthy, str(found)
    assert [(each.check, kind in each.cause) for each in found.findings] == [("weights", True)], str(found)


def test_values_of_large_calls_are_kept(monkeypatch):
    """A call of a module that is larger than what `look` keeps unasked is compared all the same."""

    def attend(x):
        q = x.unflatten(2, (2, -1)).transpose(1, 2)
        return sdpa(q, q, q).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    monkeypatch.setattr("regard.lens.recording.keeper.VALUES", 1000)
    found = rg.audit(attend, inputs=torch.randn(1, 12, 32), checks=["output"])

    assert [each.check for each in found.passed] == ["output"], str(found)


@pytest.mark.parametrize("config", [{"num_heads": 4}, ("four", "heads"), 4])
def test_a_configuration_may_be_anything(config):
    """Modules keep dicts and tuples as their configuration; such a layer declares nothing."""

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.qkv, self.config = torch.nn.Linear(32, 96), config

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, scale=1.0)

    found = rg.audit(Layer().eval(), inputs=torch.randn(1, 9, 32), checks=["scale", "mask", "groups"])

    assert found.findings == () and {each.check for each in found.skipped + found.passed} == {"scale", "mask", "groups"}
