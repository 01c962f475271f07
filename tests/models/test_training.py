"""`regard train` and `regard generate`: a run that is killed goes on bit for bit, and bad input loses nothing."""

import json
import math
import os
import signal
import subprocess
import sys
import time

import pytest
import torch

from regard.cli.generate import generate
from regard.common.errors import Refused
from regard.models.data import text
from regard.models.data.batches import Windows
from regard.models.data.vocabulary import Bytes, Decoder, Pairs
from regard.models.training import checkpoint, run
from regard.models.training.curve import curve
from regard.models.training.loop import Recipe, Training
from tests.support.command import SRC, refused, regard

pytest.importorskip("safetensors", reason="safetensors is not installed")

RHYME = "Round and round the rugged rock the ragged rascal ran.\n" * 40
TINY = {"layers": 1, "width": 16, "heads": 2, "context": 16, "batch": 2, "warmup": 2, "dropout": 0.1}
FLAGS = [part for name, value in TINY.items() for part in (f"--{name}", str(value))]


@pytest.fixture
def rhyme(tmp_path):
    path = tmp_path / "rhyme.txt"
    path.write_text(RHYME)
    return path


def tensors(folder):
    """Everything in the checkpoint: weights, moments, random states."""
    return checkpoint.read(folder / checkpoint.NAME, "", "test")[0]


def same(one, other) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def log(folder) -> list[dict]:
    """The metrics, without the times."""
    lines = [json.loads(line) for line in (folder / run.LOG).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def test_half_a_run_and_the_other_half_are_the_whole(rhyme, tmp_path):
    """Three steps, a fresh start from the folder and three more give the weights, moments, random states and losses of
    six.
    """
    wishes = {**TINY, "eval_every": 3, "accumulate": 2}
    list(run.begin(tmp_path / "whole", [rhyme], {**wishes, "steps": 6}))
    for line in run.begin(tmp_path / "halves", [rhyme], {**wishes, "steps": 6}):
        if line["step"] == 4:  # one step beyond the last checkpoint, which is logged and then done again
            break
    torch.manual_seed(99)  # the state that something else left
    list(run.resume(tmp_path / "halves", [], {}))

    assert same(tensors(tmp_path / "whole"), tensors(tmp_path / "halves"))
    assert log(tmp_path / "whole") == log(tmp_path / "halves")
    assert [line["step"] for line in log(tmp_path / "halves")] == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_killed_process_goes_on_bit_for_bit(rhyme, tmp_path):
    """kill -9 at any moment, twice: the run that is taken up again ends with the bits and the log of one that was left
    alone.
    """
    environment = {**os.environ, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "regard", "train", "--steps", "30", "--eval-every", "2"]

    def start(*arguments):
        return subprocess.Popen(
            [*command, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )

    whole = start(str(rhyme), "--out", str(tmp_path / "whole"), *FLAGS)
    first = start(str(rhyme), "--out", str(tmp_path / "killed"), *FLAGS)
    for lines, process in ((3, first), (11, None)):
        process = process or start("--out", str(tmp_path / "killed"), "--resume")
        metrics = tmp_path / "killed" / run.LOG
        while process.poll() is None and not (metrics.is_file() and metrics.read_bytes().count(b"\n") >= lines):
            time.sleep(0.001)
        process.kill()
        assert process.wait() == -signal.SIGKILL, process.stderr.read()
    last = start("--out", str(tmp_path / "killed"), "--resume")
    assert (last.wait(), whole.wait()) == (0, 0), last.stderr.read() + whole.stderr.read()

    assert same(tensors(tmp_path / "whole"), tensors(tmp_path / "killed"))
    assert log(tmp_path / "whole") == log(tmp_path / "killed")


@pytest.mark.slow
def test_ctrl_c_saves_and_says_how_to_go_on(rhyme, tmp_path):
    """The step is finished, the checkpoint written, and the last lines hold the command that goes on."""
    process = subprocess.Popen(
        [sys.executable, "-m", "regard", "train", str(rhyme), "--out", "kept", "--steps", "100000", *FLAGS],
        env={**os.environ, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1"},
        cwd=tmp_path,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    metrics = tmp_path / "kept" / run.LOG
    while process.poll() is None and not (metrics.is_file() and metrics.read_bytes()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()

    assert process.returncode == 0, err
    done = checkpoint.read(tmp_path / "kept" / checkpoint.NAME, "none", "test")[1]["about"]["done"]
    assert done == log(tmp_path / "kept")[-1]["step"]
    assert f"Saved at step {done} of 100000. To resume: regard train --resume --out kept" in out
    status, out, err = regard("train", "--resume", "--out", "kept", "--steps", str(done + 2), cwd=tmp_path)
    assert status == 0 and f"resuming from step {done}" in out, err


def test_generate_writes(rhyme, tmp_path, capsys):
    """Continuations stand behind the prompt; greedy ones are equal, a seed repeats itself, a stop ends the text behind
    its words.
    """
    found = run.begin(
        tmp_path / "run", [rhyme], {**TINY, "dropout": 0.0, "steps": 60, "learning_rate": 0.02, "batch": 8}
    )
    list(found)

    def written(prompt: str | None = "Round and ", **wishes) -> str:
        generate(tmp_path / "run", prompt, **wishes)
        return capsys.readouterr().out

    first, second = written(tokens=12, n=2, greedy=True).split("\n\n── 2 of 2 ──\n")
    assert first.removeprefix("── 1 of 2 ──\n") == second.rstrip("\n") and len(second) == len("Round and ") + 12 + 1
    assert written(seed=3) == written(seed=3) != written(seed=4)
    assert written(tokens=500, seed=0, stop=["r"]).count("r") == 1
    assert written(None, tokens=3, greedy=True)
    found = json.loads(written(tokens=12, n=2, greedy=True, as_json=True))
    assert found == {"prompt": "Round and ", "texts": [second.rstrip("\n")] * 2}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("ranks", [1, 2])
def test_json_is_all_that_standard_output_holds(ranks, rhyme, tmp_path):
    """--json: sizes, and the lines of the run's log."""
    status, out, err = regard(
        "train", str(rhyme), "--out", "run", "--steps", "4", "--ranks", str(ranks), "--json", *FLAGS, cwd=tmp_path
    )
    assert status == 0 and "To generate text: regard generate run" in err, err
    found = json.loads(out)
    same_text = run.begin(tmp_path / "again", [rhyme], TINY)
    assert (found["folder"], found["steps"], found["done"]) == ("run", 4, 4)
    assert (found["training_tokens"], found["held_out_tokens"]) == (len(same_text.learned), len(same_text.held))
    logged = [json.loads(line) for line in (tmp_path / "run" / run.LOG).read_text().splitlines()]
    assert found["metrics"] == logged and len(logged) == 4


def test_training_learns(rhyme, tmp_path):
    """On a text that repeats itself the held-out loss falls far below that of guessing, in both styles and with byte
    pairs.
    """
    for number, wishes in enumerate(
        ({"style": "gpt"}, {"style": "llama", "tokenizer": "bpe", "vocabulary": 270, "kv_heads": 1})
    ):
        folder = tmp_path / str(number)
        found = run.begin(
            folder, [rhyme], {**TINY, **wishes, "dropout": 0.0, "steps": 60, "learning_rate": 0.02, "batch": 8}
        )
        last = list(found)[-1]
        assert last["held_out"] < 0.5 * math.log(found.vocabulary.size)
        assert last["bits_per_byte"] == pytest.approx(
            last["held_out"] / math.log(2) * len(found.held) / (len(RHYME) / 10), rel=0.01
        )


def test_bfloat16_trains_close_to_float32(rhyme, tmp_path):
    """With products in bfloat16 the weights stay float32, and the losses those of float32 to two digits."""
    wishes = {**TINY, "dropout": 0.0, "steps": 10}
    losses = {}
    for precision in ("float32", "bfloat16"):
        found = run.begin(tmp_path / precision, [rhyme], {**wishes, "precision": precision})
        losses[precision] = [line["loss"] for line in found]
        assert {weight.dtype for weight in found.model.parameters()} == {torch.float32}
    assert losses["bfloat16"] != losses["float32"]
    assert losses["bfloat16"] == pytest.approx(losses["float32"], rel=0.02)


def test_accumulated_batches_are_one_large_batch(rhyme, tmp_path):
    """Two batches of two per step give the loss and the gradient norm of one batch of four."""
    one = list(run.begin(tmp_path / "one", [rhyme], {**TINY, "dropout": 0.0, "steps": 3, "batch": 4}))
    two = list(run.begin(tmp_path / "two", [rhyme], {**TINY, "dropout": 0.0, "steps": 3, "batch": 2, "accumulate": 2}))
    for name in ("loss", "norm"):
        assert [line[name] for line in two] == pytest.approx([line[name] for line in one], rel=1e-4)


def test_a_step_is_one_of_torchs_own():
    """The weights after three steps are those of AdamW written out: decay for matrices only, bias-corrected moments,
    clipping.
    """
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    x, y = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    recipe = Recipe(steps=3, warmup=2, learning_rate=0.1, weight_decay=0.5, clip=0.7)
    steps = list(Training(model, recipe, lambda number: (model(x) - y).square().sum()))

    moments = dict.fromkeys(weights, (0.0, 0.0))
    for t in (1, 2, 3):
        difference = 2 * (x @ weights["weight"].T + weights["bias"] - y)
        gradient = {"weight": difference.T @ x, "bias": difference.sum(0)}
        norm = math.sqrt(sum(part.square().sum().item() for part in gradient.values()))
        assert steps[t - 1].norm == pytest.approx(norm)
        rate = (0.05, 0.1, 0.1)[t - 1]
        for name, g in gradient.items():
            g = g * min(1.0, 0.7 / (norm + 1e-6))
            m, v = moments[name] = 0.9 * moments[name][0] + 0.1 * g, 0.95 * moments[name][1] + 0.05 * g**2
            decay = 0.5 if name == "weight" else 0.0
            weights[name] = weights[name] * (1 - rate * decay) - rate * (m / (1 - 0.9**t)) / (
                (v / (1 - 0.95**t)).sqrt() + 1e-8
            )
    for name, weight in model.named_parameters():
        assert torch.allclose(weight, weights[name], rtol=1e-9)


def test_every_epoch_sees_every_token_once():
    """The windows of an epoch lie side by side, in another order and cut elsewhere in the next; targets are the next
    tokens.
    """
    windows = Windows(torch.arange(103), context=10, size=5, seed=3)
    seen = [windows.batch(number) for number in range(4)]  # two epochs of ten windows
    for tokens, targets in seen:
        assert torch.equal(targets, (tokens + 1) % 103)
    epochs = [torch.cat([tokens for tokens, _ in seen[first : first + 2]]) for first in (0, 2)]
    for epoch in epochs:
        assert len(epoch.unique()) == 100
    assert set(epochs[0][:, 0].tolist()) != set(epochs[1][:, 0].tolist())
    assert all(map(torch.equal, windows.batch(2), Windows(torch.arange(103), 10, 5, 3).batch(2)))


def test_nothing_held_out_is_learned(tmp_path):
    """Whole documents are held out where there are enough, else the end of each; together the parts are the text, a
    tenth is held.
    """
    many = [text.Document(str(number), f"{number:02} " * 100) for number in range(40)]
    learn, held = text.split(many, seed=1)
    assert {one.name for one in learn} | {one.name for one in held} == {one.name for one in many} and len(held) == 4
    assert not {one.text for one in learn} & {one.text for one in held}
    few = [text.Document("a", "abc" * 100), text.Document("b", "xyz" * 50)]
    learn, held = text.split(few)
    assert [one.text + other.text for one, other in zip(learn, held)] == [one.text for one in few]
    assert [len(one.text) for one in held] == [30, 15]
    unequal = [text.Document("long", "a" * 10_000)] + [text.Document(str(number), "b") for number in range(20)]
    assert sum(len(one.text) for one in text.split(unequal)[1]) == pytest.approx(1000, rel=0.05)


def test_texts_are_found(tmp_path):
    """Files, folders and patterns give each text once; in a folder what is hidden or no text is passed over."""
    (tmp_path / "in").mkdir()
    for name, content in {
        "a.txt": b"one",
        "in/b.md": b"\xef\xbb\xbftwo",
        "in/c.bin": b"\0\1",
        "in/d.txt": b"caf\xe9",
        ".e.txt": b"no",
        "in/f.txt": b" \n",
    }.items():
        (tmp_path / name).write_bytes(content)
    assert [one.text for one in text.read([tmp_path, tmp_path / "a.txt"])] == ["one", "two"]
    assert [one.text for one in text.read([tmp_path / "in" / "*.md"])] == ["two"]


def test_every_text_comes_back_byte_for_byte():
    """Both vocabularies spell what they were given, letters that they never saw included, and the end of a document
    spells nothing.
    """
    pairs = Pairs.train(["the theme of the thesis " * 20], size=280)
    for vocabulary in (Bytes(), pairs):
        for words in ("the thesis", "naïve ☃ 𝄞\r\n\t\x00<end>", ""):
            tokens = vocabulary.encode(words).tolist()
            assert vocabulary.spell([*tokens, vocabulary.end]).decode() == words
            assert all(0 <= token < vocabulary.end for token in tokens)
            decoder = Decoder(vocabulary)
            assert "".join(decoder.more([token]) for token in tokens) + decoder.rest() == words
    assert len(pairs.encode("the thesis")) < len("the thesis")
    decoder = Decoder(Bytes())
    assert decoder.more([0xE2, 0x98]) + decoder.rest() == "�"


def test_the_curve_shows_the_losses():
    """The highest loss stands at the top on the left, evaluations are dots, no line is wider than asked, and ASCII
    stays ASCII.
    """
    learned = [(step, 5 / step**0.5) for step in range(1, 301)]
    held = [(step, 5 / step**0.5 + 0.1) for step in (100, 200, 300)]
    for width in (30, 72):
        lines = curve(learned, held, width=width, height=8)
        assert all(len(line) <= width for line in lines) and len(lines) == 9
        assert sum(line.count("●") for line in lines) == 3
        assert lines[0][6:] in "█▇" and len(lines[-2]) == width and lines[-1].split() == ["1", "300"]
    assert "".join(curve(learned, held, unicode=False)).isascii()
    assert curve([]) == [] and len(curve([(1, 2.0)])) == 13 and len(curve([(1, 2.0), (2, 2.0)])) == 13


def test_the_picture_is_drawn(tmp_path):
    """A PNG of the size that was asked for, and no draft beside it; the running mean of a constant is the constant."""
    pytest.importorskip("matplotlib.figure", reason="matplotlib is not installed")
    from regard.models.training.curve import plot, smooth

    plot(tmp_path / "loss.png", [(1, 3.0), (2, 2.0), (3, 1.5)], [(3, 1.6)])
    content = (tmp_path / "loss.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n") and [entry.name for entry in tmp_path.iterdir()] == ["loss.png"]
    assert int.from_bytes(content[16:20], "big") == 1040
    assert smooth([2.0] * 5, memory=0.9) == pytest.approx([2.0] * 5)


def test_what_cannot_train_is_refused(tmp_path, rhyme):
    """Empty, binary, missing and short texts, a vocabulary too small, settings that cannot work: each a sentence, and
    no folder.
    """
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\x7fELF\0\0")
    (tmp_path / "latin").write_bytes(b"caf\xe9")
    (tmp_path / "none").mkdir()
    out = tmp_path / "out"
    for files, wishes, wording in (
        ([tmp_path / "empty.txt"], {}, "empty file"),
        ([tmp_path / "binary"], {}, "not a text file.*\n.*zero bytes"),
        ([tmp_path / "latin"], {}, "not a text file.*\n.*byte 3"),
        ([tmp_path / "nowhere.txt"], {}, "no such file"),
        ([tmp_path / "none"], {}, "no text in the folder"),
        ([], {}, "no text"),
        ([rhyme], {"context": 4000}, "too little text"),
        ([rhyme], {"context": 300}, "the held-out tenth of the text has 221 tokens"),
        ([rhyme], {"tokenizer": "bpe", "vocabulary": 100}, "the vocabulary is too small"),
        ([rhyme], {"tokenizer": "words"}, "unknown tokenizer"),
        ([rhyme], {"steps": 0}, "steps is too small"),
        ([rhyme], {"learning_rate": math.nan}, "learning_rate is out of range"),
        ([rhyme], {"precision": "half"}, "unknown precision"),
        ([rhyme], {"width": 30, "heads": 4}, "d_model is not divisible by heads"),
        ([rhyme], {"device": "tpu"}, "the device is not available"),
    ):
        with pytest.raises(Refused, match=wording):
            run.begin(out, files, {**TINY, **wishes})
        assert not out.exists()
    with pytest.raises(Refused) as both:
        text.read([tmp_path / "empty.txt", tmp_path / "binary"])
    assert len(both.value.reasons) == 2


def test_nothing_is_written_over(tmp_path, rhyme):
    """A folder with something in it, a file of that name and an earlier run are refused and left as they are."""
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    for place, wording in ((mine, "the folder is not empty"), (rhyme, "the folder is a file")):
        with pytest.raises(Refused, match=wording):
            run.begin(place, [rhyme], TINY)
    assert [entry.name for entry in mine.iterdir()] == ["notes.txt"] and rhyme.read_text() == RHYME
    run.begin(tmp_path / "run", [rhyme], {**TINY, "steps": 4})
    before = (tmp_path / "run" / checkpoint.NAME).read_bytes()
    with pytest.raises(Refused, match="the folder already contains a model"):
        run.begin(tmp_path / "run", [rhyme], {**TINY, "steps": 4})
    for wishes, wording in (
        ({"width": 32}, "--width cannot change when a run is resumed"),
        ({"seed": 5}, "--seed cannot"),
        ({"steps": 0}, "steps is too small"),
    ):
        with pytest.raises(Refused, match=wording):
            run.resume(tmp_path / "run", [], wishes)
    rhyme.write_text(RHYME[1:])
    with pytest.raises(Refused, match="the texts have changed"):
        run.resume(tmp_path / "run", [], {})
    assert (tmp_path / "run" / checkpoint.NAME).read_bytes() == before
    rhyme.write_text(RHYME)
    (tmp_path / "run" / run.LOG).write_text('{"step": 1}\n{step}\n')
    with pytest.raises(Refused, match="the log cannot be read"):
        run.resume(tmp_path / "run", [], {})
    (tmp_path / "run" / run.LOG).write_text('{"step": 1}\n{"st')  # half a line, as a kill leaves it
    list(run.resume(tmp_path / "run", [], {}))
    with pytest.raises(Refused, match="the run is complete"):
        run.resume(tmp_path / "run", [], {})
    with pytest.raises(Refused, match="no model in the folder"):
        run.resume(mine, [], {})
    checkpoint.save(tmp_path / "finished", run.resume(tmp_path / "run", [], {"steps": 9}).model)
    with pytest.raises(Refused, match="the folder does not contain a training run"):
        run.resume(tmp_path / "finished", [], {})


def test_a_training_that_diverges_stops_before_it_spoils_the_weights(rhyme, tmp_path):
    """A loss that is no number any more is refused; the weights are still finite and the checkpoint is the last good
    one.
    """
    found = run.begin(tmp_path / "run", [rhyme], {**TINY, "steps": 4, "eval_every": 2})
    steps = iter(found)
    next(steps), next(steps)
    before = (tmp_path / "run" / checkpoint.NAME).read_bytes()
    with torch.no_grad():
        first = next(found.model.parameters())
        kept = first.clone()
        first.fill_(math.nan)
    with pytest.raises(Refused, match="the training has diverged"):
        next(steps)
    with torch.no_grad():
        first.copy_(kept)
    assert all(weight.isfinite().all() for weight in found.model.parameters())
    assert (tmp_path / "run" / checkpoint.NAME).read_bytes() == before


def test_one_process_trains_in_a_folder(rhyme, tmp_path):
    """While a run takes steps no other may; one that has fallen behind is refused; a run that was left is free
    again.
    """
    found = run.begin(tmp_path / "run", [rhyme], {**TINY, "steps": 4, "eval_every": 1})
    steps = iter(found)
    next(steps)
    other = run.resume(tmp_path / "run", [], {})
    with pytest.raises(Refused, match="the folder is in use"):
        next(iter(other))
    next(steps)
    steps.close()
    with pytest.raises(Refused, match=r"the run was continued by another process\n.*step 1 here, 2 in"):
        next(iter(other))
    assert [line["step"] for line in run.resume(tmp_path / "run", [], {})] == [3, 4]


def test_generate_refuses_what_it_cannot_write(tmp_path):
    """No folder, a model that does not write, numbers that cannot work, and a prompt that is not text: one sentence
    each.
    """
    for wishes, wording in (
        ({}, "no model in the folder"),
        ({"n": 0}, "-n is too small"),
        ({"device": "tpu"}, "the device is not available"),
        ({"prompt": "a\udcff"}, r"not UTF-8\n.*byte 1 of the prompt"),
    ):
        with pytest.raises(Refused, match=wording):
            generate(**{"folder": tmp_path, "prompt": "x", **wishes})
    from regard.models import VisionConfig, VisionTransformer

    checkpoint.save(
        tmp_path, VisionTransformer(VisionConfig(height=2, width=2, patch=1, classes=2, d_model=8, layers=1, heads=1))
    )
    with pytest.raises(Refused, match="not a language model"):
        generate(tmp_path, "x")
    assert "no model in the folder" in refused("generate", str(tmp_path / "nowhere"), "x")
