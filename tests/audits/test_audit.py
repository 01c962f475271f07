"""`audit` and its command: models stay unchanged; models, functions and runs are accepted, bad arguments are not."""

import functools
import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import regard as rg
from regard.audits import audit
from regard.audits.difference import ALLOWED
from regard.audits.make_subject import from_module, from_transformers
from regard.cli import app
from regard.lens.look import look
from tests.support.small_model import BEHAVIOUR, LENGTH, Small, tiny, words


def test_an_audit_leaves_the_model_as_it_was():
    """Weights, modes, hooks, implementation and the caller's random numbers are what they were."""
    model = tiny("llama").train()
    model.model.layers[0].eval()
    before = {name: part.clone() for name, part in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    random = torch.get_rng_state()

    audit(model)

    assert all(torch.equal(part, before[name]) for name, part in model.state_dict().items())
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.config._attn_implementation == "eager"


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
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).eval()
    fused = torch.backends.mha.get_fastpath_enabled()

    found = audit(layer, inputs=torch.randn(1, 24, 64), checks=["padding-leak", "batch-dependence"])

    assert found.healthy and {each.check for each in found.passed} == {"padding-leak", "batch-dependence"}, str(found)
    assert torch.backends.mha.get_fastpath_enabled() is fused


def test_flex_attention_runs_in_an_audit_and_after_it():
    """The perturbed runs do not make torch skip FlexAttention's frame, which would break it in the whole process."""
    flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="this torch has no FlexAttention")

    class Block(torch.nn.Module):
        def forward(self, x):
            heads = x.unflatten(-1, (2, 8)).transpose(1, 2)
            return flex.flex_attention(heads, heads, heads).transpose(1, 2).flatten(2)

    torch._dynamo.reset()
    x = torch.randn(1, 6, 16)
    result = audit(Block(), inputs=x)
    assert {each.check for each in result.findings} <= {"training-mode"}
    assert Block()(x).isfinite().all()


def test_a_leak_below_rounding_is_no_finding():
    """What the outputs would move by rounding alone passes, whatever makes it; what is beyond does not."""
    subject = from_module(Small().eval(), words(), True)
    limit = ALLOWED * subject.rounding["output"]

    for size, healthy in ((limit / 2, True), (limit * 50, False)):
        model = Small(after=lambda x, size=size: x + size * x.flip(1) / 4).eval()
        assert audit(model, inputs=words(), causal=True, checks=["future-leak"]).healthy == healthy


def test_near_equal_choices_are_no_fault():
    """A model that chooses between equals by rounding alone has no finding: its rounding is measured over more runs."""

    class Choosing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.table, self.out = torch.nn.Embedding(40, 16), torch.nn.Linear(16, 16)

        def forward(self, ids, attention_mask=None):
            x = self.out(self.table(ids))
            return torch.where(
                (x.sum(-1, keepdim=True) - x.flip(-1).sum(-1, keepdim=True)) * (ids.shape[1] % 2 - 0.5) > 0, x, -x
            )

    found = audit(Choosing().eval(), inputs=words(), checks=["padding-leak", "batch-dependence"])

    assert found.healthy, str(found)


# --- what can be given


@pytest.mark.parametrize("diagonal", [0, 1])
def test_a_function_of_q_k_v(diagonal):
    """The sequence of an attention function is its positions, not its heads: a mask that is off by one is found."""
    q, k, v = torch.randn(3, 1, 4, LENGTH, 8, generator=torch.Generator().manual_seed(0))
    seen = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril(diagonal)
    function = functools.partial(torch.nn.functional.scaled_dot_product_attention, attn_mask=seen)

    found = audit(function, inputs=(q, k, v), causal=True)

    assert found.healthy == (diagonal == 0)
    assert [each.check for each in found.findings if each.severity == "fault"] == ["future-leak", "mask"][
        : 2 * diagonal
    ]
    assert found.healthy or found.findings[0].numbers["reach"] == 1


def test_a_run_and_its_folder(tmp_path):
    """A recorded run and the folder it was saved in are audited alike, by the checks of runs alone."""
    q, k = np.random.default_rng(0).standard_normal((2, 2, 9, 8), dtype=np.float32)
    run = look(q, k=k, mask=rg.causal())
    run.save(tmp_path / "run")

    whole, saved = audit(run), audit(tmp_path / "run")

    assert whole.healthy and whole.to_json() == saved.to_json()
    assert not {each.check for each in (*whole.passed, *whole.skipped)} & set(BEHAVIOUR)


def test_json_is_plain():
    """Everything that an audit knows survives JSON."""
    found = audit(Small(after=lambda x: x / (x - x)).eval(), inputs=words(), causal=True)

    assert json.loads(json.dumps(found.to_json(), allow_nan=False)) == found.to_json()
    assert found.to_json()["findings"][0]["check"] in str(found)


REFUSED = [
    (lambda: audit(Small(), inputs=words(), checks=["future-leek"]), "no such check", "'future-leek'"),
    (lambda: audit(Small()), "no inputs", "NoneType for Small"),
    (lambda: audit(Small(), inputs=torch.cat([words(), words()])), "several batch entries", "(2, 17)"),
    (
        lambda: audit(tiny("bert"), inputs={"input_ids": torch.ones(2, 4).long()}),
        "several batch entries",
        "input_ids of shape (2, 4)",
    ),
    (lambda: audit(Small(), "a text", inputs=words()), "text= has no effect for a torch module", "str"),
    (lambda: audit(tiny("llama"), "a text"), "a text without a tokenizer", "'a text' for LlamaForCausalLM"),
    (
        lambda: audit(tiny("llama"), inputs={"input_ids": torch.zeros(1, 4)}),
        "the model does not run",
        "LlamaForCausalLM",
    ),
    (lambda: audit("no/such/folder"), "no such model", "'no/such/folder'"),
    (
        lambda: audit(look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4))), causal=True),
        "causal= has no effect for a recorded run",
        "bool",
    ),
]


@pytest.mark.parametrize("call, what, given", REFUSED, ids=range(len(REFUSED)))
def test_what_makes_no_sense_is_refused(call, what, given):
    """Every refusal names what was given, what is expected and a fix."""
    with pytest.raises(rg.Refused) as refused:
        call()

    (reason,) = refused.value.reasons
    assert reason.what == what and given in reason.given and reason.expected and reason.fix


# --- findings


# --- the command


def test_the_command_says_what_is_wrong(tmp_path):
    """Exit status 1 for a fault, 0 for a healthy model; the same findings as text and as JSON."""
    model = tiny("llama")
    model.save_pretrained(tmp_path / "healthy")
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight.fill_(torch.nan)
    model.save_pretrained(tmp_path / "ill")
    runner = CliRunner()

    healthy = runner.invoke(app, ["audit", str(tmp_path / "healthy")])
    ill = runner.invoke(app, ["audit", str(tmp_path / "ill"), "--checks", "finite", "--json"])

    assert healthy.exit_code == 0 and "healthy" in healthy.output.splitlines()[0] and "future-leak" in healthy.output
    assert ill.exit_code == 1
    assert [finding["check"] for finding in json.loads(ill.output)["findings"]] == ["finite"]


def test_json_acts_on_no_terminal(tmp_path):
    """JSON on standard output is ASCII: a name that holds control characters does nothing, and is still the same
    name.
    """
    q, k = np.random.default_rng(0).standard_normal((2, 2, 6, 8))
    run = look(q, k=k)
    replace(run, model="\u009b2J\u202e").save(tmp_path / "run")

    found = CliRunner().invoke(app, ["audit", str(tmp_path / "run"), "--json"])

    assert found.output.isascii() and json.loads(found.output)["model"] == "\u009b2J\u202e"


def test_notes_count_under_strict():
    """The default model has notes and no faults: it passes, and does not under --strict."""
    runner = CliRunner()

    assert runner.invoke(app, ["audit", "--checks", "sink"]).exit_code == 0
    strict = runner.invoke(app, ["audit", "--checks", "sink", "--strict"])
    assert strict.exit_code == 1 and "fix" in strict.output


def test_the_command_refuses_in_sentences(capsys, monkeypatch):
    """An unknown check is one sentence and exit status 2."""
    from regard.cli import main

    monkeypatch.setattr("sys.argv", ["regard", "audit", "--checks", "leek"])
    with pytest.raises(SystemExit) as left:
        main()

    assert left.value.code == 2
    assert capsys.readouterr().err.startswith("regard: no such check: 'leek'; expected one of ")
