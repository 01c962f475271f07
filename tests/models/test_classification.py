"""`regard classify`: tables are read or refused by line, reports are scikit-learn's numbers, and classifiers learn."""

import io
import json
import random

import numpy as np
import pytest
import torch

from regard.cli.classify import classify
from regard.models.data import tables
from regard.models.training import checkpoint, classification
from regard.models.training.classification import Report
from tests.support.command import regard
from tests.support.refusals import refusing

GOOD, BAD = ["good", "great", "lovely", "fine"], ["bad", "awful", "poor", "dull"]


def reviews(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Texts whose class one word decides, of uneven classes."""
    chance = random.Random(seed)
    rows = []
    for _ in range(count):
        label = chance.choice(["good", "good", "bad"])
        words = chance.choices(["the", "film", "was", "a", "story", "and", "night"], k=chance.randint(1, 9))
        words.insert(chance.randrange(len(words) + 1), chance.choice(GOOD if label == "good" else BAD))
        rows.append((" ".join(words), label))
    return rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, and a classifier that the command learned from it."""
    place = tmp_path_factory.mktemp("reviews")
    (place / "reviews.csv").write_text(
        "review,sentiment\n" + "".join(f'"{text}",{label}\n' for text, label in reviews(200))
    )
    sizes = {"layers": 1, "width": 16, "heads": 2, "steps": 120, "learning-rate": 0.01}
    asked = [part for name, value in sizes.items() for part in (f"--{name}", str(value))]
    status, out, err = regard("classify", "reviews.csv", *asked, cwd=place, OMP_NUM_THREADS="1")
    assert status == 0, err
    (place / "told").write_text(out)
    return place


@pytest.mark.slow
def test_a_classifier_learns_and_tells_how_well(folder):
    """One word decides, so nearly all held-out rows are right; the baseline, the figures per class and the matrix stand
    beside it.
    """
    told = (folder / "told").read_text()
    saved = checkpoint.load(folder / "classifier")
    report = saved.about["report"]
    assert report["rows"] == 40 and report["accuracy"] > 0.95 > 0.8 > report["baseline"] > 0.5
    for words in (
        f"accuracy {report['accuracy']:.1%} of 40 test rows",
        f"baseline {report['baseline']:.1%}: always predicting 'good'",
        "column",
        "precision",
        "true \\ predicted",
        "regard classify --model classifier",
    ):
        assert words in told

    texts, labels = zip(*reviews(60, seed=1))
    found = classification.predict(saved, texts)
    assert torch.allclose(found.sum(1), torch.ones(60))
    assert np.mean(np.array(saved.about["classes"])[found.argmax(1)] == labels) > 0.95
    alone = torch.cat([classification.predict(saved, [text]) for text in texts[:5]])
    assert torch.allclose(alone, found[:5], atol=1e-5)  # neighbours in the batch change nothing


@pytest.mark.slow
def test_a_classifier_is_asked(folder, capsys, monkeypatch):
    """A text, lines of standard input, the rows of a table; with the labels named, a table is judged."""
    monkeypatch.chdir(folder)

    def told(source: str, **wishes) -> list[str]:
        classify(source, model=folder / "classifier", **wishes)
        return capsys.readouterr().out.splitlines()

    [line] = told("a lovely film")
    assert line.startswith("good\t") and line.endswith("\ta lovely film")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"a great night\n\nan awful story\n")))
    assert [line.split("\t")[0] for line in told("-")] == ["good", "bad"]
    assert len(told("reviews.csv")) == 200
    judged = told("reviews.csv", label="sentiment")
    assert judged[0].endswith("of 200 rows of reviews.csv") and judged[1].endswith("always predicting 'good'")
    metrics = json.loads("".join(told("reviews.csv", label="sentiment", as_json=True)))
    assert metrics["rows"] == 200 and judged[0].startswith(f"accuracy {metrics['accuracy']:.1%} ")
    [one] = json.loads("".join(told("a  lovely film", as_json=True)))
    assert (one["text"], one["class"]) == ("a  lovely film", "good") and sum(one["probabilities"].values()) > 0.999
    assert line.split("\t")[1] == f"{one['probabilities']['good']:.3f}"
    for source, wishes, wording in (
        ("text", {"steps": 3, "out": folder / "x"}, r"training options cannot be combined .*\n.*--out, --steps"),
        ("text", {"label": "sentiment"}, "--text and --label require a table"),
        (" ", {}, "no text"),
    ):
        with refusing(wording):
            told(source, **wishes)


def labelled(labels):
    """A table with these labels."""
    texts = [f"text {number}" for number in range(len(labels))]
    return tables.Table("t.csv", texts, list(labels), list(range(2, len(labels) + 2)), ("text", "label"))


def test_the_report_has_scikit_learns_numbers():
    """Accuracy, precision, recall, F1, support and confusions equal scikit-learn's; what is not counted is NaN, not a
    guess.
    """
    from sklearn import metrics

    chance = np.random.default_rng(0)
    true, found = chance.integers(0, 4, 100), chance.integers(0, 3, 100)
    report = Report.of(true, found, list("abcd"), majority=2)
    precision, recall, _, support = metrics.precision_recall_fscore_support(true, found, zero_division=np.nan)
    for mine, theirs in (
        (report.precision, precision),
        (report.recall, recall),
        (report.support, support),
        (report.f1, metrics.f1_score(true, found, average=None)),
        (report.confusion, metrics.confusion_matrix(true, found)),
        (report.accuracy, metrics.accuracy_score(true, found)),
        (report.baseline, np.mean(true == 2)),
    ):
        np.testing.assert_allclose(mine, theirs)
    assert report.f1[3] == 0 and np.isnan(report.precision[3])


def test_rows_are_held_out_by_class_and_equal_texts_stay_together():
    """About a fifth of each class is held out, no text is on both sides, and nothing is lost."""
    texts, labels = map(list, zip(*reviews(100), *[("the same again", "good")] * 20))
    table = tables.Table("t", texts, labels, list(range(120)), ("text", "label"))
    learn, held = classification.split(table, seed=2)
    assert not set(learn.texts) & set(held.texts) and sorted(learn.lines + held.lines) == list(range(120))
    for label in ("good", "bad"):
        assert held.labels.count(label) == pytest.approx(0.2 * labels.count(label), abs=1)


@pytest.mark.parametrize(
    "name, content, columns, first",
    [
        ("a.csv", 'text,label\n"one, two",x\nthree,y\n', ("text", "label"), ("one, two", "x")),
        (
            "b.csv",
            "intent;utterance\nbuy;one, now\nsell;no, two\nbuy;more\n",
            ("utterance", "intent"),
            ("one, now", "buy"),
        ),
        ("c.csv", "3,first text\n1,second one\n3,third\n", ("2", "1"), ("first text", "3")),
        ("d.tsv", 'label\ttext\n1\tsay "hi"\n2\tno\n', ("text", "label"), ('say "hi"', "1")),
        (
            "e.csv",
            '\ufefflabel,id,review\r\na,7,"two\r\nlines"\r\nb,8,one\r\n',
            ("review", "label"),
            ("two\r\nlines", "a"),
        ),
        ("f.jsonl", '{"text": "one", "label": 1}\n\n{"text": "two", "label": true}\n', ("text", "label"), ("one", "1")),
    ],
)
def test_columns_are_found(name, content, columns, first, tmp_path):
    """With names and without, with any separator, quoted or not: the texts and the labels are those a reader would
    take.
    """
    path = tmp_path / name
    path.write_text(content, newline="")
    table = tables.read(path)
    assert table.columns == columns and (table.texts[0], table.labels[0]) == first


@pytest.mark.parametrize(
    "content, wording, wishes",
    [
        (b"", "the table is empty", {}),
        (b"text,label\n", "the table is empty", {}),
        (b"text,label\na,x\nb\n", r"rows of different widths\n.*1 fields in line 3, 2 in line 1", {}),
        (
            b"text,label\na,x\n ,y\nb,\n",
            r"column 'text' of .* is empty in line 3(.|\n)*column 'label' of .* is empty in line 4",
            {},
        ),
        (
            b"text,label\na,x\nb,y\n",
            r"--text\n.*'words'(.|\n)*--label\n.*'kind'.*has 'text', 'label'",
            {"text": "words", "label": "kind"},
        ),
        (
            b"text,label\na,x\nb,y\n",
            "--text and --label name the same column",
            {"text": "label", "label": "label"},
        ),
        (b"text\na\nb\n", "no label column", {}),
        (b"text,text,label\na,b,x\n", "duplicate column names", {}),
        (b'text,label\na,x\n"b,y\n', "the row that starts in line 3", {}),
        (b"text,label\na\0,x\n", "zero bytes", {}),
        (b'{"text": "a", "label": "x"}\n{"text"\n', "line 2", {}),
        (b'{"text": "a", "label": "x"}\n[1]\n', "line 2: a list", {}),
        (b'{"text": "a", "label": null}\n{"text": "b", "label": 2}', "is empty in line 1", {}),
        (b'{"text": "a"}\n{"text": "caf\xe9"}', r"not UTF-8\n.*line 2", {}),
    ],
)
def test_a_faulty_table_is_refused_by_line(content, wording, wishes, tmp_path):
    """Every fault names the file and the line or column, and faults of one kind are told together; other kinds of files
    and files that are not there are refused.
    """
    path = tmp_path / ("t.jsonl" if content.startswith(b"{") else "t.csv")
    path.write_bytes(content)
    with refusing(wording):
        tables.read(path, **wishes)
    for name, wording in (("nowhere.csv", "the table cannot be read"), ("t.xlsx", "unknown file type")):
        with refusing(wording):
            tables.read(tmp_path / name)


def test_what_cannot_be_learned_is_refused(tmp_path):
    """One class only, too few rows, a folder in the way, settings that cannot work: a sentence each, and nothing
    written over.
    """
    for labels, wishes, wording in (
        ("x" * 20, {}, "only one class"),
        ("xy" * 4, {}, "too few rows"),
        ("xy" * 10, {"tokenizer": "words"}, "unknown tokenizer"),
        ("xy" * 10, {"device": "tpu"}, "the device is not available"),
        ("abcdefghijkl", {}, "too few rows"),
        ("xy" * 10, {"context": 0}, "context is"),
    ):
        with refusing(wording):
            classification.Classification(labelled(labels), None, wishes)
    with refusing(r"unknown class\n.*'z' in line 3"):
        classification.Classification(labelled("xy" * 10), labelled("xz"), {})
    (tmp_path / "mine").write_text("mine")
    for place, wording in ((tmp_path / "mine", "the folder is a file"), (tmp_path, "the folder is not empty")):
        with refusing(wording):
            checkpoint.check_free(place, "classify", "")
