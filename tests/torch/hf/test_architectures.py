"""The table of architectures: a sample of its rows is true, and what does not match is found out."""

import pytest
from transformers import AttentionInterface

from bench import architectures
from regard import Refused
from regard.torch.hf import attention as hf
from tests import ROOT

DOCS = ROOT / "docs" / "reference" / "architectures.md"
REFUSED = {
    "bloom": "computes its attention itself",
    "git": "computes with its mask",
    "resnet": "no attention call",
    "inkling2_text": "sinks that differ per query",
}


def in_docs(name: str) -> str:
    """The heading under which the architecture stands in the kept table."""
    heading = ""
    for line in DOCS.read_text(encoding="utf-8").split(architectures.FIRST)[1].splitlines():
        heading = line[4:] if line.startswith("### ") else heading
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if name in (cells[0], *cells[-1].split(", ")):
            return heading
    return "nowhere"


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["whisper", "t5", "bert", "vit", "clip", "bart", "gemma3", "qwen3_next"])
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
    with pytest.raises(Refused, match=r"no such architecture(.|\n)*lama(.|\n)*did you mean 'llama'"):
        architectures.compare("lama")
    with pytest.raises(Refused) as refused:
        architectures.main(["bert", "lama", "gtp2"])
    assert [reason.given for reason in refused.value.reasons] == ["lama", "gtp2"]


def test_the_command_prints_a_line_for_each(capsys):
    """`python -m bench.architectures`: a line for each architecture, and how many match."""
    assert architectures.main(["bert"]) == 0
    line, summary = capsys.readouterr().out.splitlines()
    assert line.startswith("matches    bert (") and summary.startswith("1 matches")


def test_a_page_without_the_marker_lines_is_refused(tmp_path, capsys):
    """Before anything is computed."""
    page = tmp_path / "page.md"
    page.write_text("a page")
    with pytest.raises(SystemExit):
        architectures.main(["bert", "--save", str(page)])
    assert "add them where the table belongs" in capsys.readouterr().err


def test_the_table_takes_its_place():
    """A new table replaces the old one; what stands around it stays."""
    rows = [
        architectures.Row("a", "vision", "AModel", "matches", calls=2, error=1e-7, usual=1e-7),
        architectures.Row("b", "vision", "BModel", "refused", "because"),
        architectures.Row("c", "vision", "CModel", "refused", "because"),
    ]
    text = f"before\n{architectures.FIRST}\nold\n{architectures.LAST}\nafter\n"
    found = architectures.placed(text, architectures.table(rows))
    assert architectures.marked(text) and not architectures.marked("nothing")
    assert found.startswith("before\n") and found.endswith("\nafter\n") and "old" not in found
    assert "1 of 3 architectures match" in found and "| because | b, c |" in found
    assert architectures.placed(found, architectures.table(rows)) == found
