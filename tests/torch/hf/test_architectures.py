"""The table of architectures: a sample of its rows is true, and what does not match is found out.

All of its rows are tested in test_readiness.py.
"""

import re

import pytest
from transformers import AttentionInterface

from bench import architectures
from regard.torch.hf import attention as hf
from tests import ROOT
from tests.support.refusals import refusing

DOCS = ROOT / "docs" / "reference" / "architectures.md"
REFUSED = {
    "bloom": "computes its attention itself",
    "git": "computes with its mask",
    "resnet": "no attention call",
    "inkling2_text": "sinks that differ per query",
}


def in_docs(name: str) -> str:
    """The heading under which the architecture stands in the kept table."""
    text = DOCS.read_text(encoding="utf-8").split(architectures.FIRST)[1]
    row = re.search(rf"^\|(.*[,|])? {name}[ ,].*\|$", text, re.M)
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
