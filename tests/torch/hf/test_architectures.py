"""The table of architectures: a sample of its rows is true, all of them in sweeps, and what does not match is
found out; `check` is silent about a model exactly when it runs on regard.
"""

import re

import pytest
import torch
from transformers import AttentionInterface

from bench import architectures
from regard import Refused
from regard.torch.hf import attention as hf
from regard.torch.hf import check, record
from regard.torch.hf.tiny_models import accepted, mappings
from tests import ROOT
from tests.support.refusals import refusing
from tests.torch.hf.models import built, on

DOCS = ROOT / "docs" / "reference" / "architectures.md"
REFUSED = {
    "bloom": "computes its attention itself",
    "git": "computes with its mask",
    "resnet": "no attention call",
    "inkling2_text": "sinks that differ per query",
}


def in_docs(name: str, text: str = DOCS.read_text(encoding="utf-8").split(architectures.FIRST)[1]) -> str:
    """The heading under which the architecture stands in the kept table, or in another text."""
    row = re.search(rf"^(.*[,|] )?{name}[ ,°\n]", text, re.M)
    return re.findall("^### (.*)$", text[: row.start()], re.M)[-1]


@pytest.mark.parametrize("name", ["whisper", "vit", "gemma3"])
def test_a_row_that_matches(name):
    """Outputs, gradients and tokens are eager's, and the docs say so."""
    row = architectures.compare(name)
    assert row.result == "matches" and row.calls > 0, row
    assert in_docs(name) == row.family.capitalize()


@pytest.mark.parametrize("name", REFUSED)
def test_a_row_that_is_refused(name):
    """What regard cannot compute is refused with the reason, and the docs say so."""
    row = architectures.compare(name)
    assert row.result == "refused" and REFUSED[name] in row.reason
    assert in_docs(name) == "Refused"


def test_a_wrong_attention_is_found(monkeypatch):
    """An attention that forgets a part of the formula differs, it does not match."""

    def register():
        AttentionInterface.register("regard", lambda *args, softcap=None, **kwargs: hf.attend(*args, **kwargs))

    hf.register()
    monkeypatch.setattr(hf, "register", register)
    assert architectures.compare("gemma2").result == "differs"
    monkeypatch.undo()
    hf.register()


def test_unknown_names_are_refused():
    """Names that transformers does not know, all of them at once and before anything is computed, with the nearest."""
    with refusing("did you mean 'llama'") as caught:
        architectures.main(["bert", "lama", "gtp2"])
    assert [reason.given for reason in caught.value.reasons] == ["lama", "gtp2"]


def test_the_command_saves_a_table(tmp_path, capsys):
    """`python -m bench.architectures`: a line for each architecture, how many match, and the table between the marker
    lines of a page, which it must have.
    """
    page = tmp_path / "page.md"
    page.write_text("a page")
    with pytest.raises(SystemExit):
        architectures.main(["bert", "--save", str(page)])
    assert "add them where the table belongs" in capsys.readouterr().err
    page.write_text(f"before\n{architectures.FIRST}\nold\n{architectures.LAST}\nafter\n")
    assert architectures.main(["bert", "bloom", "--save", str(page)]) == 0
    line, _, summary = capsys.readouterr().out.splitlines()
    assert line.startswith("matches    bert (") and summary.startswith("1 matches")
    found = page.read_text()
    assert found.startswith("before\n") and found.endswith("\nafter\n") and "old" not in found
    assert "1 of 2 architectures match" in found and "| bloom |" in found


# ---- check -----------------------------------------------------------------------------------------------------------

FAILS = ["gemma4_audio", "git", "doge", "inkling2_text", "lasr_encoder", "bigbird_pegasus", "resnet"]


@pytest.mark.parametrize("name", FAILS)
def test_check_refuses_what_does_not_run(name):
    """A model whose forward fails, or never calls regard, is refused, with the part that fails by name."""
    model = built(name, "eager")
    given = accepted(model)
    with refusing() as caught:
        check(on(model, "regard"))
    kinds = {type(part).__name__ for part in model.modules()}
    for reason in caught.value.reasons:
        assert any(kind in reason.given for kind in kinds) and 'eager"' in reason.fix
    with torch.no_grad(), pytest.raises((Refused, TypeError)), record(model):
        model(**given)


def test_a_part_that_no_text_reaches_is_found():
    """Gemma 4 with audio: text alone runs, sound does not, and check says which part it is and how to go on: with that
    part on its own attention, check is silent and the forward gives eager's result.
    """
    model = built("gemma4", audio_config={})
    ids = torch.cat([torch.full((2, 10), model.config.audio_token_id), torch.randint(3, 50, (2, 6))], 1)
    given = {"input_features": torch.randn(2, 40, 128), "input_features_mask": torch.ones(2, 40, dtype=torch.bool)}
    with refusing("Gemma4AudioModel") as caught:
        check(model)
    (reason,) = caught.value.reasons
    assert 'set_attn_implementation({"audio_config": "eager"})' in reason.fix
    with torch.no_grad():
        model(input_ids=ids * 0 + 5)
        with pytest.raises(TypeError):
            model(input_ids=ids, **given)
        check(on(model, {"audio_config": "eager"}))
        with record(model) as calls:
            found = model(input_ids=ids, **given).logits
        want = on(model, "eager")(input_ids=ids, **given).logits
    assert calls and (found - want).abs().max() < 1e-4 * want.abs().max()


def test_a_part_that_could_run_must():
    """A part that runs on regard, but is set to another implementation, is not excused."""
    model = on(built("paligemma"), {"vision_config": "eager"})
    with refusing("a part of the model does not run on regard"):
        check(model)


def test_check_leaves_no_trace():
    """The model, its random numbers and what records it are as they were."""
    model = built("llama").train()
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    state = torch.random.get_rng_state()
    check(model)
    assert torch.equal(state, torch.random.get_rng_state()) and model.training
    assert all(torch.equal(before[name], weight) for name, weight in model.state_dict().items())
    assert not any(part._forward_pre_hooks for part in model.modules())
    assert all(weight.grad is None for weight in model.parameters())


def test_a_disagreement_is_a_difference(monkeypatch):
    """In the table of architectures, a check that is wrong either way is found out."""

    def refuse(model):
        raise Refused("check", [])

    monkeypatch.setattr(architectures, "check", refuse)
    assert architectures.compare("llama").reason == "check refuses what runs"
    monkeypatch.setattr(architectures, "check", lambda model: None)
    row = architectures.compare("git")
    assert row.result == "differs" and row.reason.startswith("check is silent, but the forward raises")


@pytest.mark.sweep
@pytest.mark.parametrize("name", sorted(mappings()))
def test_every_architecture_matches_or_says_why(name):
    """Outputs, gradients, tokens and weights are eager's, and what check says is what the forward does."""
    row = architectures.compare(name)
    assert row.result != "differs", row
