"""The worked examples that train: each learns what it says, here made small."""

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
import torch

from tests import ROOT


@pytest.mark.sweep
@pytest.mark.slow
def test_attention_recalls_and_states_do_not(monkeypatch, capsys):
    """With eight pairs and a hundred steps attention answers nearly every key; a GRU and an LSTM of its size few."""
    recall = import_module("examples.recall")
    for name, size in {"PAIRS": 8, "KEYS": 16, "VALUES": 16, "NOTHING": 16, "WIDTH": 32}.items():
        monkeypatch.setattr(recall, name, size)
    found = recall.main("--steps", "100")

    assert found["attention"] > 0.9 > 0.5 > max(found["GRU"], found["LSTM"])
    assert "attention" in capsys.readouterr().out


@pytest.mark.sweep
@pytest.mark.slow
def test_digits_are_read(capsys):
    """A tenth of the steps already reads far more digits than a guess; pictures are shifted, not turned or lost."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    digits = import_module("examples.digits")
    assert digits.main("--steps", "50").accuracy > 0.4
    images = torch.zeros(200, 1, 8, 8).index_fill_(3, torch.tensor([4]), 1.0)
    moved = digits.shifted(images, torch.Generator().manual_seed(0))
    assert {int(column) for column in moved[:, 0, 4].argmax(1)} == {3, 4, 5}


@pytest.mark.sweep
@pytest.mark.slow
def test_induction_heads_copy(capsys):
    """A model that copies nearly guesses among 64 tokens without the heads that the detector names."""
    found = import_module("examples.induction").main()

    assert found["whole"] < 0.7 and found["without the best head"] > 2 * found["whole"]
    assert found["without the induction heads"] > 3 and "induction" in capsys.readouterr().out


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("name", ["what_it_refers_to", "sinks_and_spare_heads"])
def test_notebooks_print_what_they_show(name, capsys):
    """The cells of a notebook, run in order, print the words and the numbers that stand below them, up to rounding."""
    names, number = {}, re.compile(r"-?\d+\.\d+")
    cells = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())["cells"]
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
            shown = "".join(line for output in cell["outputs"] for line in output["text"])
            printed = capsys.readouterr().out
            assert number.sub("", printed) == number.sub("", shown)
            for here, there in zip(number.findall(printed), number.findall(shown), strict=True):
                last_digit = 10.0 ** -len(there.partition(".")[2])
                assert float(here) == pytest.approx(float(there), rel=0.01, abs=1.1 * last_digit)


def test_a_model_of_the_standard_library(tmp_path, monkeypatch, capsys):
    """The example trains, goes on from its folder, draws the loss and writes, here on two files of the library."""
    pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    library = import_module("examples.language_model")
    monkeypatch.setattr(library.sysconfig, "get_path", lambda name: str(tmp_path / "source"))
    (tmp_path / "source").mkdir()
    for name in ("textwrap.py", "bisect.py"):
        (tmp_path / "source" / name).write_text(Path(library.argparse.__file__).with_name(name).read_text())
    small = {"vocabulary": 300, "layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "context": 32}
    monkeypatch.setattr(library, "SHAPE", library.SHAPE | small)
    for steps in ("2", "4"):
        library.main("--steps", steps, "--out", str(tmp_path / "model"))
    printed = capsys.readouterr().out
    assert "starting at step 0" in printed and "starting at step 2" in printed
    assert "█" in printed and "Generated after 'def '" in printed
