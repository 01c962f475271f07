"""Modules written by hand, which declare nothing: their mistakes are named, and their healthy twins are silent."""

import functools
from pathlib import Path

import pytest
import torch

import regard as rg
from bench.audit_faults import layouts, styles
from bench.audit_faults.__main__ import evidence, judged_in
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


# Attention without a softmax may be intended.
@pytest.mark.parametrize("fault", sorted(styles.FAULTS.keys() - {"no softmax"}))
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
    module = ByHand(functools.partial(sdpa, scale=1.0))
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


def test_a_check_is_explained_by_its_own_docstring():
    """The page of the checks says what each of them does and cannot see in the words of its function."""
    page = (Path(rg.__file__).parents[2] / "docs/reference/checks.md").read_text()

    assert [name for name in names() if f"**`{name}`**\n{explained(name)}\n" not in page] == []
    assert [name for name in names() if "annot" not in explained(name)] == []
