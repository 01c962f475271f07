"""Models of `regard train` and `regard classify` are opened with a text, and with their own continuation."""

import numpy as np
import pytest
import safetensors  # noqa: F401, without which all is skipped
import torch

import regard as rg
from regard.lens.open_model import OpenModel
from regard.models import Config, LanguageModel, generate
from regard.models.data import tables
from regard.models.data.vocabulary import Bytes, Pairs
from regard.models.training import checkpoint, run
from regard.models.training.classification import Classification, predict
from tests.cli.test_look import runs_of
from tests.support.command import done
from tests.support.refusals import refusing

RHYME = "Round and round the rugged rock the ragged rascal ran.\n"
SMALL = {"layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "context": 64, "batch": 4, "warmup": 2}
SMALL |= {"steps": 30, "window": 16, "eval_every": 30}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A language model and a classifier, trained for a few steps on texts beside them."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "rhyme.txt").write_text(RHYME * 60)
    list(run.begin(folder / "run", [folder / "rhyme.txt"], SMALL))
    rows = [f"film {number} was {word},{word}" for number, word in enumerate(("good", "bad") * 20)]
    (folder / "reviews.csv").write_text("review,sentiment\n" + "\n".join(rows))
    table = tables.read(folder / "reviews.csv")
    learning = Classification(table, None, {"layers": 1, "width": 16, "heads": 2, "steps": 20, "context": 32})
    list(learning)
    learning.save(folder / "classifier", learning.report())
    checkpoint.save(folder / "bare", LanguageModel(Config(vocabulary=9, d_model=16, layers=1, heads=2)))
    for name in ("damaged", "notes"):
        (folder / name).mkdir()
    (folder / "damaged" / "model.safetensors").write_bytes((folder / "run" / "model.safetensors").read_bytes()[:-9])
    (folder / "notes" / "notes.md").write_text("notes")
    return folder


def test_a_trained_model_is_recorded_with_a_text(place):
    """Every layer, with the tokens of the model's vocabulary, and rules that give the outputs of the model. An audit,
    which takes no folder of this kind, says how to record it.
    """
    run = rg.look(place / "run", "Round and né")
    assert run.model == "run" and run.axes["text"].tokens[-3:] == ("n", "⟨C3⟩", "⟨A9⟩")
    assert [(call.layer, call.shape, call.groups) for call in run.calls] == [(0, (4, 13, 13), 2), (1, (4, 13, 13), 2)]
    for call in run.calls:
        assert call.notes["compared"] == "all rows" and call.notes["difference"] < 1e-5
    with refusing(r"not a model folder.*regard look .*run --save RUN"):
        rg.audit(str(place / "run"))


@pytest.mark.parametrize("file", ["run", "run/model.safetensors"])
def test_without_a_text_it_is_the_beginning_of_the_validation_text(place, file):
    """What was held out in training, and the run says so; the model file itself is opened, too."""
    found, held = rg.look(place / file), run.resume(place / "run", [], {"steps": 31}).held
    assert Bytes().encode(found.text).tolist() == held[:64].tolist()
    assert found.facts["text_source"].startswith("the beginning of the validation text, from ")


def test_a_text_is_generated_where_the_files_have_changed(place):
    """The sample has seed 0, and the run says why."""
    text, saved = place / "rhyme.txt", checkpoint.load(place / "run")
    ids = generate(saved.model, [[256]], tokens=64, seed=0, stop=[[256]])[0]
    expected = bytes(token for token in ids if token < 256).decode(errors="ignore").lstrip()
    try:
        for change in (lambda: text.write_text(RHYME.replace("rascal", "cat") * 60), text.unlink):
            change()
            found = rg.look(place / "run")
            assert found.text == expected
            assert "because the files of its training are missing, have changed" in found.facts["text_source"]
    finally:
        text.write_text(RHYME * 60)


def test_its_own_continuation_is_recorded(place):
    """The tokens are those of greedy generation, every row is one of the model without a cache, and the candidates are
    its probabilities, also where the window hides keys that a cache of the model would have dropped.
    """
    model, prompt = checkpoint.load(place / "run").model, "Round and round the rugged rock"
    ids, run = Bytes().encode(prompt).tolist(), rg.look(place / "run", prompt, generate=9)
    text = prompt + bytes(generate(model, [ids], tokens=9, greedy=True)[0]).decode()
    assert "".join(run.axes["text"].tokens) == text
    with torch.no_grad():
        chances = model(torch.tensor([[*text.encode()]]))[0].double().softmax(-1)
    for at, step in zip(range(len(ids), len(ids) + 9), run.steps, strict=True):
        likeliest, chance = step.candidates[0]
        assert (step.position, likeliest) == (at, text[at])
        np.testing.assert_allclose(chance, chances[at - 1, ord(likeliest)], atol=1e-5)
    for call, again in zip(run.calls, rg.look(place / "run", text).calls, strict=True):
        assert call.notes["difference"] < 1e-5
        np.testing.assert_allclose(call.weights(), again.weights(), atol=1e-5)
    assert not run.calls[0].allowed(rows=30, keys=14, heads=0).any()


def test_an_end_token_ends_the_continuation(tmp_path):
    """A model that always predicts the end of the document generates nothing, and the run says why."""
    model = LanguageModel(Config(vocabulary=257, d_model=16, layers=1, heads=2, context=8, tied=False)).eval()
    with torch.no_grad():
        model.output.weight.zero_()
        model.output.weight[256] = 1.0
        model.output.weight[256] = torch.sign(model(torch.tensor([[104]]))[0, -1, 256])
    checkpoint.save(tmp_path, model, vocabulary=Bytes())
    run = rg.look(tmp_path, "h", generate=3)
    assert run.steps == () and run.calls[0].shape == (2, 1, 1)
    assert run.facts["stopped"] == "the model generated an end token after 0 tokens"


def test_learned_positions_limit_text_and_continuation(tmp_path):
    """Tokens of byte pairs; as many as there are positions, and one more is refused."""
    pairs = Pairs.train([RHYME * 3], 280)
    torch.manual_seed(0)
    model = LanguageModel(Config.gpt(vocabulary=pairs.size, d_model=16, layers=1, heads=2, context=12))
    checkpoint.save(tmp_path, model, vocabulary=pairs)
    n = len(pairs.encode("the rugged"))
    run = rg.look(tmp_path, "the rugged", generate=12 - n)
    assert "".join(run.axes["text"].tokens[:n]) == "the rugged" and run.calls[0].shape[1] <= 12
    for given, more, said in (("the rugged", 13 - n, f"{n} tokens and {13 - n} more"), (RHYME, 0, "expected")):
        with refusing(rf"too long.*{said}.*at most 12"):
            rg.look(tmp_path, given, generate=more)
    assert 1 <= rg.look(tmp_path, generate=5).calls[0].shape[1] <= 12  # a model that was saved without files


def test_a_classifier_is_recorded_with_what_it_predicts(place):
    """Without a text it is the first held-out row; the probabilities are those of `regard classify --model`."""
    run, saved = rg.look(place / "classifier"), checkpoint.load(place / "classifier")
    line = saved.about["held_out"]["line"]
    assert run.text == tables.read(place / "reviews.csv").texts[line - 2]
    assert run.facts["text_source"] == f"a held-out row, line {line} of {place / 'reviews.csv'}"
    (_, first), (_, second) = run.facts["predicted"]
    expected = zip(saved.about["classes"], predict(saved, [run.text])[0].tolist(), strict=True)
    assert dict(run.facts["predicted"]) == pytest.approx(dict(expected), abs=1e-6) and first >= second


@pytest.mark.parametrize(
    ("name", "given", "named", "said"),
    [
        ("run", "words", {"picture": "a.png", "entry": 1}, "picture= has no meaning for a trained model.*entry= has"),
        ("classifier", "words", {"generate": 2}, "cannot generate text.*generate=2 for classifier.*a language model"),
        ("classifier", "words " * 40, {}, "too long.*at most 32 for classifier"),
        ("run", "", {}, "no text.*which has no ordinary token"),
        ("run", ["a", "b"], {}, "not a text.*list.*pass one text"),
        ("run", "a", {"generate": -1}, "generate is negative"),
        ("bare", "a", {}, "bare contains a LanguageModel without a vocabulary.*expected.*inputs="),
        ("damaged", "a", {}, "the model file is damaged.*damaged/model.safetensors"),
        ("notes", "a", {}, "not a model folder.*it contains notes.md.*regard train and regard clas"),
    ],
)
def test_what_it_cannot_do_is_refused(place, name, given, named, said):
    """Arguments without a meaning, generation by a classifier, texts that are too long, and other files."""
    with refusing(said):
        rg.look(place / name, given, **named)


def test_a_model_without_its_table_needs_a_text(place):
    """The refusal says what is missing and how to pass a text."""
    table = place / "reviews.csv"
    rows = table.read_text()
    try:
        for change, said in (
            (table.unlink, "no text for the model.*reviews.csv.*pass a text: regard look"),
            (lambda: table.write_text("review\nonly\n"), "reviews.csv has no row in line"),
        ):
            change()
            with refusing(said):
                rg.look(place / "classifier")
    finally:
        table.write_text(rows)


@pytest.mark.parametrize(("name", "generated"), [("run", 3), ("classifier", 0)])
def test_a_trained_model_stays_open(place, name, generated):
    """Another text on the served page goes through the model that was opened once, also with its continuation."""
    first = rg.look(place / name, "the film", generate=generated)
    model = OpenModel.of(first)
    one, opened, two = model("was good"), model.model, model("the film")
    assert model.model is opened is not None
    assert (one.text, two.text, len(one.steps)) == ("was good", "the film", generated)
    np.testing.assert_array_equal(two.calls[0].weights(), first.calls[0].weights())


def test_the_command_opens_the_folder_alone(place, tmp_path, monkeypatch):
    """`regard look FOLDER` says which text it shows, and what the model predicts."""
    monkeypatch.chdir(tmp_path)
    for name, said in (("run", "the beginning of the validation text"), ("classifier", "The model predicts: ")):
        assert said in done("look", place / name)
        assert f"'model': '{name}'" in str(runs_of(tmp_path / "attention.html"))
