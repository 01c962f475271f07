"""Modules written by hand, which declare nothing: their mistakes are named, and their healthy twins are silent."""

import functools
from pathlib import Path

import pytest
import torch

import regard as rg
from bench.audit_faults import blocks, layouts, styles
from bench.audit_faults.__main__ import evidence, judged_in, planted_alarms
from regard.audits.checks import explained, names
from regard.lens.look import look
from tests.audits.small_audits import ByHand, audited, healthy
from tests.support.runs import alarms, checks, sdpa
from tests.support.tensors import normal

X = normal(1, 12, 32)


def weighted(part):
    return torch.nn.functional.rms_norm(part, (16,), torch.linspace(0.5, 1.5, 16))


BY_HAND = {
    "healthy": (functools.partial(sdpa, is_causal=True), None),
    "normed q and k": (
        lambda q, k, v: sdpa(*(torch.nn.functional.normalize(part, dim=-1) for part in (q, k)), v, scale=1.0),
        None,
    ),
    "q and k normed with weights": (lambda q, k, v: sdpa(weighted(q), weighted(k), v, scale=1.0), None),
    "top left": (lambda q, k, v: sdpa(q[:, :, -3:], k, v, is_causal=True), ("alignment", "fault")),
    "no sign": (lambda q, k, v: torch.softmax((q @ k.mT / 4).abs(), -1) @ v, ("scale", "fault")),
    "booleans added": (
        lambda q, k, v: torch.softmax(q @ k.mT / 4 + torch.ones(12, 12).tril().bool(), -1) @ v,
        ("mask", "fault"),
    ),
}


@pytest.mark.parametrize("name", BY_HAND)
def test_modules_written_by_hand(name):
    """Mistakes in a plain torch module that declares nothing are named, and its healthy twins are silent."""
    attend, expected = BY_HAND[name]
    module = ByHand(attend).eval()

    found = alarms(checks(look(module, inputs=X), module))

    assert [(finding.check, finding.severity) for finding in found] == ([] if expected is None else [expected])


LOWER, KEPT = torch.ones(12, 12).tril(), torch.ones(1, 12, dtype=torch.bool)


def weights(scores):
    return torch.softmax(scores, -1)


def of_powers(q, k, v, root):
    powers = (q @ k.mT / root).exp()
    return powers / (1 + powers.sum(-1, True)) @ v


def difference(q, k, v, root):
    each = weights(q @ k.mT / root)
    return (each - 0.5 * each.roll(1, 1))[:, :1] @ v


def turned(part):
    angles = torch.arange(12.0)[:, None] * torch.linspace(0.1, 0.8, part.shape[-1] // 2)
    one, other = part.chunk(2, -1)
    return torch.cat([one * angles.cos() - other * angles.sin(), one * angles.sin() + other * angles.cos()], -1)


def latent(q, k, v, rotate):
    shared = rotate(k[:, :1, :, 8:]).expand_as(k[..., 8:])
    return sdpa(torch.cat([q[..., :8], turned(q[..., 8:])], -1), torch.cat([k[..., :8], shared], -1), v)


class Attend(torch.nn.Module):
    """With a norm, a softcap and a mask of its own."""

    def __init__(self, attend, argument):
        super().__init__()
        self.attend, self.argument, self.norm = attend, argument, torch.nn.RMSNorm(16)
        self.softcap = 5.0 if attend is capped else None
        self.norm.weight.data = torch.linspace(0.5, 1.5, 16)
        self.register_buffer("lower", LOWER)
        self.table = torch.nn.Parameter(normal(23, 2)) if attend is biased else None

    def forward(self, *parts):
        return self.attend(self, *parts, self.argument)


def capped(module, q, k, v, cap):
    scores = cap * torch.tanh(module.norm(q) @ module.norm(k).mT / 4 / 5)
    return weights(scores - 1e9 * (1 - module.lower)) @ v


def own_norm(module, q, k, v, shift):
    return weights(module.norm(q) @ module.norm(k.roll(shift, 2)).mT / 4 * module.lower - 1e9 * (1 - module.lower)) @ v


def biased(module, q, k, v, view):
    added = view(module.table[torch.arange(12)[:, None] - torch.arange(12) + 11])
    return weights(module.norm(q) @ module.norm(k).mT / 4 + added - 1e9 * (1 - module.lower)) @ v


def own_mask(module, q, k, v, used):
    return sdpa(module.norm(q), module.norm(k), v, attn_mask=module.lower.bool() if used else None)


FURTHER = {  # how to attend, the arguments for which it is wrong and right, and the words of the cause
    "one more in the sum": (of_powers, 16, 4, "twice"),
    "a mask of products": (
        lambda q, k, v, root: weights(q @ k.mT / root * LOWER - 1e9 * (1 - LOWER)) @ v,
        16,
        4,
        "twice",
    ),
    "differential attention": (difference, 16, 4, "twice"),
    "temperatures": (
        lambda q, k, v, p: (
            weights(
                torch.nn.functional.normalize(q, p, -1)
                @ torch.nn.functional.normalize(k, 2, -1).mT
                * torch.tensor([[[3.0]], [[5.0]]])
            )
            @ v
        ),
        1,
        2,
        "not normalized",
    ),
    "transposed": (lambda q, k, v, lower: sdpa(q, k, v, attn_mask=lower > 0), LOWER.T, LOWER, "transposed"),
    "values rotated": (
        lambda q, k, v, rotate: sdpa(turned(q), turned(k), rotate(v)),
        turned,
        torch.clone,
        "values are",
    ),
    "shared keys": (latent, torch.clone, turned, "keys are not rotated"),
    "cap forgotten": (functools.partial(Attend, capped), 1, 5, "another number"),
    "keys before the norm": (functools.partial(Attend, own_norm), 1, 0, "another order of positions"),
    "bias of others": (
        functools.partial(Attend, biased),
        lambda added: added.reshape(2, 12, 12),
        lambda added: added.permute(2, 0, 1),
        "that of other heads",
    ),
    "shares of ReLU": (
        lambda q, k, v, way: way((q @ k.mT / 4).masked_fill(LOWER == 0, -9)) @ v,
        lambda scores: scores.relu() / scores.relu().sum(-1, True),
        weights,
        "relu takes the place",
    ),
    "mask never read": (functools.partial(Attend, own_mask), False, True, "mask is not applied"),
}


@pytest.mark.parametrize("name", FURTHER)
def test_further_forms_of_attention(name):
    """The first finding names what is wrong, and the right twin is silent."""
    attend, wrong, right, words = FURTHER[name]

    def causes(argument):
        part = functools.partial
        module = ByHand(attend(argument) if isinstance(attend, part) else lambda q, k, v: attend(q, k, v, argument))
        return [each.cause for each in rg.audit(module.eval(), inputs=X).findings if each.severity != "note"]

    assert words in causes(wrong)[0] and causes(right) == []


def test_a_mask_without_a_telling_name():
    """What is true for each position is a padding mask; where it hides every key, that is said first."""
    layer = torch.nn.Linear(32, 32)

    def audited_with(mask):
        return rg.audit(lambda x, real: sdpa(*[layer(x)[:, None]] * 3, attn_mask=mask(real))[:, 0], inputs=(X, KEPT))

    lost, inverted = audited_with(lambda real: None), audited_with(lambda real: ~real[:, None, None])
    assert "real does not reach" in lost.findings[0].cause and "hides every key" in inverted.findings[0].cause
    healthy(audited_with(lambda real: real[:, None, None]), "padding-leak")


@pytest.mark.parametrize("fault", sorted(styles.FAULTS))
def test_faults_of_whole_models(fault):
    """The first finding of an audit names the fault, in one of the styles that can have it."""
    every = [style for style in styles.HOSTS if styles.fits(fault, style)]

    assert judged_in(styles, every[len(fault) % len(every)], fault) == "cause"


@pytest.mark.parametrize("style", styles.HOSTS)
def test_whole_models_are_silent(style):
    """In each of the styles, with learned, sinusoidal, rotary and linear positions."""
    assert judged_in(styles, style, None) == "silent"


@pytest.mark.parametrize("shown", [False, True], ids=["SDPA", "weights are returned"])
def test_the_attention_of_torch_is_silent(shown):
    """torch.nn.MultiheadAttention, which scales q itself where it returns weights, is healthy."""
    attend = functools.partial(torch.nn.MultiheadAttention(32, 2, batch_first=True).eval(), need_weights=shown)

    healthy(rg.audit(lambda x: attend(x, x, x)[0], inputs=X, checks=["scale"]), "scale")


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_a_softmax_of_few_bits_is_named(kind):
    """Weights that are rounded to 16 bits in a module of 32 are a warning that says so, not another fault."""
    dtype = getattr(torch, kind)
    module = ByHand(lambda q, k, v: torch.softmax((q @ k.mT / 4).to(dtype), -1).float() @ v)

    found = audited(module, torch.randn(1, 200, 32), None, ["weights", "output", "softmax"])

    named = [(each.check, each.severity, kind in each.cause) for each in found.findings]
    assert named == [("weights", "warning", True)], str(found)


def test_values_of_large_calls_are_kept(monkeypatch):
    """A call of a module that is larger than what `look` keeps unasked is compared all the same."""
    monkeypatch.setattr("regard.lens.recording.keeper.VALUES", 1000)

    healthy(audited(ByHand(sdpa), X, None, ["output"]), "output")


@pytest.mark.parametrize("config", [{"num_heads": 4}, ("four", "heads"), 4])
def test_a_configuration_may_be_anything(config):
    """Modules keep dicts and tuples as their configuration; such a layer declares nothing."""
    module = ByHand(sdpa)
    module.config = config

    assert audited(module, X, None, ["scale", "mask", "groups"]).findings == ()


SHOWN = {
    "cached": "not appended",
    "buckets": "padding ignored",
    "linear": "no causal mask",
    "swin": "attention over windows",
}


@pytest.mark.parametrize("layout", SHOWN)
def test_the_evidence_of_a_fault_shows_it_without_regard(layout):
    """The script of a finding prints a difference for the model with the fault, and none for its healthy twin."""
    planted, healthy = evidence(layouts, layout, SHOWN[layout])

    assert planted > 1e-3 > healthy


FAULTS = {  # in models of bench.audit_faults, with the check and the place that are right
    ("seq2seq", "source padding not in the encoder"): ("padding-leak", "encoders.0, positions 0 to 9"),
    ("seq2seq", "source padding inverted in the decoder"): ("padding-leak", "crosses.0, positions 0 to 9"),
    ("seq2seq", "target padding not passed"): ("padding-leak", "decoders.0, positions 4, 5, 7, 8, 9"),
    ("latents", "weights masked after the softmax"): ("padding-leak", "read, output"),
    ("conformer", "padding in the convolution"): ("padding-leak", "positions 0 to 17"),
    ("conformer", "lengths one too short"): ("padding-leak", "layers.0, the last real token"),
    ("conformer", "inverse norm missing"): ("scale", "call 0 (layers.0)"),
    ("vit", "inverse norm twice"): ("scale", "call 0 (blocks.0)"),
    ("vit", "causal by mistake"): ("projections", "the input pixels"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_whole_model_is_named_with_its_place(fault):
    """By the first finding."""
    first, *_ = planted_alarms(blocks, *fault)

    assert (first.check, first.where) == FAULTS[fault]
    assert any(word in first.cause for word in blocks.FAULTS[fault[1]][0])


@pytest.mark.parametrize("host", blocks.HOSTS)
def test_a_healthy_whole_model_is_silent(host):
    """Encoder–decoders with two masks, lengths, learned biases of two axes, class tokens."""
    assert planted_alarms(blocks, host, None) == []


def test_the_owner_of_a_mask_is_found_by_trying():
    """Of two inputs of one length the one that can be shortened with the mask, not the first."""

    def model(one, two, mask):
        return one + two.masked_fill(mask[..., None], 0).sum(1, keepdim=True)

    inputs = {"one": X, "two": X + 1, "mask": torch.zeros(1, 12, dtype=torch.bool)}

    healthy(rg.audit(model, inputs=inputs, checks=["padding-leak"]), "padding-leak")


def test_a_check_that_saw_nothing_says_so():
    """In 16 bits rounding may be as large as the output."""
    found = rg.audit(lambda x: (x * 1e3).sin().mT.matmul(x).sin(), inputs=X.bfloat16(), checks=["batch-dependence"])

    assert "this sees nothing, audit model.float()" in found.passed[0].measured


@pytest.mark.parametrize("rescales", [True, False])
def test_functions_of_q_k_v_are_judged_by_the_laws(rescales):
    """Also where the given inputs show nothing, because they fit into a tile of 16 keys."""

    def tiled(q, k, v):
        top, total, out = torch.tensor(-1e30), 0, 0
        for keys, values in zip(k.split(16, 2), v.split(16, 2)):
            scores = q @ keys.mT * q.shape[3] ** -0.5
            highest = torch.maximum(top, scores.amax(-1, True))
            weights, factor = (scores - highest).exp(), (top - highest).exp() if rescales else 1
            total, out, top = total * factor + weights.sum(-1, True), out * factor + weights @ values, highest
        return out / total

    found = rg.audit(tiled, inputs=normal(3, 1, 2, 9, 8).unbind(), checks=["laws"]).findings

    assert ["not rescaled" in each.cause for each in found] == [True] * (not rescales)


def test_a_check_is_explained_by_its_own_docstring():
    """The page of the checks says what each of them does and cannot see in the words of its function."""
    page = (Path(rg.__file__).parents[2] / "docs/reference/checks.md").read_text()

    assert [name for name in names() if f"**`{name}`**\n{explained(name)}\n" not in page] == []
    assert [name for name in names() if "annot" not in explained(name)] == []
