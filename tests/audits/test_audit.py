"""`audit` and its command: models stay unchanged; models, functions and runs are accepted, bad arguments are not."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.attention.flex_attention as flex

import regard as rg
from regard.audits import audit
from regard.audits.finding import ALLOWED
from regard.audits.make_subject import from_module, from_transformers
from regard.lens.look import look
from tests.audits.small_audits import audited, checked, healthy
from tests.support.command import done, refused, regard
from tests.support.engines import normal
from tests.support.small_model import BEHAVIOUR, LENGTH, Small, tiny, words


@pytest.mark.parametrize("name", ["llama", "bert", "t5", "qwen3_moe"])
def test_rounding_is_what_float32_makes(name):
    """The measured rounding covers what float32 errs against float64, and is not a thousand times as large."""
    model = tiny(name)
    subject = from_transformers(model)
    rounding = subject.rounding
    exact = from_transformers(model.double()).run(subject.inputs)

    for output, part in subject.outputs.items():
        erred = float((part.double() - exact[output]).abs().max())
        assert erred <= ALLOWED * rounding[output]
        assert rounding[output] <= 1000 * erred


@pytest.mark.parametrize("seed", [7, 9, 21, 25, 28])
def test_rounding_within_a_fused_layer_is_no_leak(seed):
    """A layer that torch computes in one operator is given what its sums round, and torch's own choice stays as it
    was.
    """
    torch.manual_seed(seed)
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    fused = torch.backends.mha.get_fastpath_enabled()

    found = audited(layer, torch.randn(1, 24, 64), None, ["padding-leak", "batch-dependence"])

    healthy(found, "padding-leak", "batch-dependence")
    assert torch.backends.mha.get_fastpath_enabled() is fused


def test_flex_attention_runs_in_an_audit_and_after_it():
    """The perturbed runs do not make torch skip FlexAttention's frame, which would break it in the whole process."""

    class Block(torch.nn.Module):
        def forward(self, x):
            heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
            return flex.flex_attention(heads, heads, heads).transpose(1, 2).flatten(2)

    torch._dynamo.reset()
    x = torch.randn(1, 6, 16)
    assert checked(audit(Block(), inputs=x).findings) <= {"training-mode"}
    assert Block()(x).isfinite().all()


def test_a_leak_below_rounding_is_no_finding():
    """What the outputs would move by rounding alone passes, whatever makes it; what is beyond does not."""
    limit = ALLOWED * from_module(Small().eval(), words(), True).rounding["output"]

    for size, silent in ((limit / 2, True), (limit * 50, False)):
        model = Small(after=lambda x, size=size: x + size * x.flip(1) / 4)
        assert audited(model, checks=["future-leak"]).healthy == silent


def test_near_equal_choices_are_no_fault():
    """A model that chooses between equals by rounding alone has no finding: its rounding is measured over more runs."""

    def chosen(x):
        off = x.sum((1, 2), keepdim=True) - x.flip(2).sum((1, 2), keepdim=True)
        return torch.where(off * (x.shape[1] % 2 - 0.5) > 0, x, -x)

    healthy(audited(Small(after=chosen), words(8), causal=None, checks=["padding-leak", "batch-dependence"]))


# --- what can be given


@pytest.mark.parametrize("diagonal", [0, 1])
def test_a_function_of_q_k_v(diagonal):
    """The sequence of an attention function is its positions, not its heads: a mask that is off by one is named
    before what it lets leak.
    """
    q, k, v = torch.randn(3, 1, 4, LENGTH, 8)
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(diagonal)
    function = functools.partial(torch.nn.functional.scaled_dot_product_attention, attn_mask=seen)

    found = audit(function, inputs=(q, k, v), causal=True)

    assert [each.check for each in found.findings if each.severity == "fault"] == ["mask", "future-leak"] * diagonal
    assert found.healthy or found.findings[1].numbers["reach"] == 1
    audit(torch.nn.functional.scaled_dot_product_attention, inputs=(q[:, 0], k[:, 0], v[:, 0]), checks=["finite"])


def test_a_run_and_its_folder(tmp_path):
    """A recorded run and the folder it was saved in are audited alike, by the checks of runs alone."""
    q, k = normal(2, 2, 9, 8)
    run = look(q, k=k, mask=rg.causal())
    run.save(tmp_path / "run")

    whole, saved = audit(run), audit(tmp_path / "run")

    assert whole.healthy and whole.to_json() == saved.to_json()
    assert not checked((*whole.passed, *whole.skipped)) & set(BEHAVIOUR)


def test_json_is_plain():
    """Everything that an audit knows survives JSON."""
    found = audited(Small(after=lambda x: x / (x - x)), checks=None)

    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == found.to_json()
    assert found.to_json()["findings"][0]["check"] in str(found)


# --- the command


def test_the_command_says_what_is_wrong(tmp_path):
    """Exit status 1 for a fault, 0 for a healthy model; the same findings as text and as JSON."""
    model = tiny("llama")
    model.save_pretrained(tmp_path / "healthy")
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight.fill_(torch.nan)
    model.save_pretrained(tmp_path / "ill")

    well = done("audit", tmp_path / "healthy")
    status, ill, _ = regard("audit", tmp_path / "ill", "--checks", "finite", "--json")

    assert "healthy" in well.splitlines()[0] and "future-leak" in well
    assert status == 1
    assert [finding["check"] for finding in json.loads(ill)["findings"]] == ["finite"]


def test_json_acts_on_no_terminal(tmp_path):
    """JSON on standard output is ASCII: a name that holds control characters does nothing, and is still the same
    name. Notes are no fault, and are counted.
    """
    run = look(np.ones((2, 24, 8)), k=np.ones((2, 24, 8)))
    replace(run, model="\u009b2J\u202e", calls=run.calls * 2).save(tmp_path / "run")
    text, found = (done("audit", tmp_path / "run", "--checks", "uniform", *more) for more in ((), ("--json",)))

    assert "notes: uniform (2 times)" in text
    assert found.isascii() and json.loads(found)["model"] == "\u009b2J\u202e"


def test_notes_count_under_strict():
    """The default model has notes and no faults: it does not pass under --strict."""
    status, out, _ = regard("audit", "--checks", "sink", "--strict")

    assert status == 1 and "fix" in out


def test_the_command_refuses_in_sentences():
    """An unknown check is one sentence and exit status 2."""
    assert refused("audit", "--checks", "leek").startswith("regard: no such check: 'leek'; expected one of ")
