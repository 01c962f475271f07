"""`regard train` and `regard generate`: a run that is killed goes on bit for bit, and bad input loses nothing."""

import copy
import json
import math
import os
import resource
import signal
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
import torch

from regard.cli.generate import generate
from regard.cli.train import together
from regard.models import VisionConfig, VisionTransformer
from regard.models.data import batches
from regard.models.data.batches import Windows
from regard.models.data.vocabulary import Bytes, Decoder, Pairs
from regard.models.training import checkpoint, run
from regard.models.training.loop import Recipe, Settings, Training
from regard.models.training.over_ranks import Alone, Ranks
from regard.models.training.run import curve, plot
from tests.models import on_ranks
from tests.models.texts import FLAGS, RHYME, TINY, done, log, tensors, train_process, until_steps
from tests.parallel.ranks import Simulated
from tests.parallel.started import results
from tests.support.command import refused, regard
from tests.support.refusals import refusing
from tests.support.waiting import HANG

LEARNING = {"dropout": 0.0, "steps": 60, "learning_rate": 0.02, "batch": 8}


@pytest.fixture(scope="module")
def fluent(tmp_path_factory):
    """A run that has learned the rhyme, its folder, and the last line of its log."""
    folder = tmp_path_factory.mktemp("fluent")
    (folder / "rhyme.txt").write_text(RHYME)
    found = run.begin(folder / "run", [folder / "rhyme.txt"], {**TINY, **LEARNING})
    return found, folder / "run", list(found)[-1]


def same_runs(one, other) -> None:
    """Fails unless two folders have the same weights, moments, random states and losses."""
    torch.testing.assert_close(tensors(one), tensors(other), rtol=0, atol=0)
    assert log(one) == log(other)


def test_half_a_run_and_the_other_half_are_the_whole(begin, tmp_path):
    """Three steps, a fresh start from the folder and three more give the weights, moments, random states and losses of
    six.
    """
    wishes = {"eval_every": 3, "accumulate": 2, "steps": 6}
    list(begin("whole", **wishes))
    for line in begin("halves", **wishes):
        if line["step"] == 4:  # one step beyond the last checkpoint, which is logged and then done again
            break
    torch.manual_seed(99)  # the state that something else left
    list(run.resume(tmp_path / "halves", [], {}))

    same_runs(tmp_path / "whole", tmp_path / "halves")
    assert [line["step"] for line in log(tmp_path / "halves")] == [1, 2, 3, 4, 5, 6]


STEPS = 100  # so many that no process ends before it is killed, however busy the machine is


@pytest.mark.slow
def test_a_killed_process_goes_on_bit_for_bit(begin, rhyme, tmp_path):
    """kill -9 at any moment, then Ctrl-C, which finishes the step, saves and prints the command that goes on: the run
    ends with the bits and the log of one that was left alone.
    """
    kept = tmp_path / "kept"
    killed = train_process(tmp_path, rhyme, "--out", "kept", "--steps", STEPS, "--eval-every", 2, *FLAGS)
    until_steps(kept, killed, 3)
    killed.kill()
    assert killed.wait() == -signal.SIGKILL, killed.stderr.read()
    resumed = train_process(tmp_path, "--out", "kept", "--resume")
    until_steps(kept, resumed, done(kept) + 3)
    resumed.send_signal(signal.SIGINT)
    out, err = resumed.communicate()

    assert resumed.returncode == 0, err
    step = done(kept)
    assert step == log(kept)[-1]["step"] < STEPS
    assert f"Saved at step {step} of {STEPS}. To resume: regard train --resume --out kept" in out
    status, out, err = regard("train", "--resume", "--out", "kept", cwd=tmp_path)
    assert status == 0 and f"resuming from step {step}" in out, err
    list(begin("whole", steps=STEPS, eval_every=2))
    same_runs(tmp_path / "whole", kept)


def test_generate_writes(fluent, capsys):
    """Continuations stand behind the prompt; greedy ones are equal, a seed repeats itself, a stop ends the text behind
    its words.
    """

    def written(prompt: str | None = "Round and ", **wishes) -> str:
        generate(fluent[1], prompt, **wishes)
        return capsys.readouterr().out

    first, second = written(tokens=12, n=2, greedy=True).split("\n\n── 2 of 2 ──\n")
    assert first.removeprefix("── 1 of 2 ──\n") == second.rstrip("\n") and len(second) == len("Round and ") + 12 + 1
    assert written(seed=3) == written(seed=3) != written(seed=4)
    assert written(tokens=500, seed=0, stop=["r"]).count("r") == 1
    assert written(None, tokens=3, greedy=True)
    found = json.loads(written(tokens=12, n=2, greedy=True, as_json=True))
    assert found == {"prompt": "Round and ", "texts": [second.rstrip("\n")] * 2}


def test_json_is_all_that_standard_output_holds(begin, rhyme, tmp_path):
    """--json: sizes, and the lines of the run's log."""
    asked = ["--out", "run", "--steps", "4", "--json"]
    status, out, err = regard("train", str(rhyme), *asked, *FLAGS, cwd=tmp_path)
    assert status == 0 and "To generate text: regard generate run" in err and "To resume" not in err, err
    found = json.loads(out)
    same_text = begin("again")
    assert (found["folder"], found["steps"], found["done"]) == ("run", 4, 4)
    assert (found["training_tokens"], found["held_out_tokens"]) == (len(same_text.learned), len(same_text.held))
    logged = [json.loads(line) for line in (tmp_path / "run" / run.LOG).read_text().splitlines()]
    assert found["metrics"] == logged and len(logged) == 4


def test_training_learns(fluent, begin):
    """On a text that repeats itself the held-out loss falls far below that of guessing, in both styles and with byte
    pairs.
    """
    other = begin(style="llama", tokenizer="bpe", vocabulary=270, kv_heads=1, **LEARNING)
    for found, last in (fluent[::2], (other, list(other)[-1])):
        assert last["held_out"] < 0.5 * math.log(found.vocabulary.size)
        bits = last["held_out"] / math.log(2) * len(found.held)
        assert last["bits_per_byte"] == pytest.approx(bits / (len(RHYME) / 10), rel=0.01)


def test_bfloat16_trains_close_to_float32(begin):
    """With products in bfloat16 the weights stay float32, and the losses those of float32 to two digits."""
    losses = []
    for precision in ("float32", "bfloat16"):
        found = begin(precision, dropout=0.0, steps=10, precision=precision)
        losses.append([line["loss"] for line in found])
        assert {weight.dtype for weight in found.model.parameters()} == {torch.float32}
    assert losses[1] != losses[0] and losses[1] == pytest.approx(losses[0], rel=0.02)


def test_accumulated_batches_are_one_large_batch(begin):
    """Two batches of two per step give the loss and the gradient norm of one batch of four."""
    found = []
    for batch, accumulate in ((4, 1), (2, 2)):
        lines = begin(str(batch), dropout=0.0, steps=3, batch=batch, accumulate=accumulate)
        found.append([line[name] for line in lines for name in ("loss", "norm")])
    assert found[1] == pytest.approx(found[0], rel=1e-4)


def test_a_step_is_one_of_torchs_own():
    """Three steps are those of torch's clipping and AdamW, with decay for matrices only and a rate that warms up."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2).double()
    x, y = torch.randn(5, 3).double(), torch.randn(5, 2).double()
    theirs = copy.deepcopy(model)
    recipe = Recipe(steps=3, warmup=2, learning_rate=0.1, weight_decay=0.5, clip=0.7)
    steps = list(Training(model, recipe, lambda number: (model(x) - y).square().sum()))

    plain = {"params": [theirs.bias], "weight_decay": 0.0}
    optimizer = torch.optim.AdamW([{"params": [theirs.weight]}, plain], betas=(0.9, 0.95), weight_decay=0.5)
    for step, rate in zip(steps, (0.05, 0.1, 0.1), strict=True):
        optimizer.zero_grad()
        (theirs(x) - y).square().sum().backward()
        assert step.norm == pytest.approx(torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.7).item())
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
    torch.testing.assert_close(list(model.parameters()), list(theirs.parameters()), rtol=1e-9, atol=0)


def test_every_epoch_sees_every_token_once():
    """The windows of an epoch lie side by side, in another order and cut elsewhere in the next; targets are the next
    tokens.
    """
    windows, again = (Windows(torch.arange(103), context=10, size=5, seed=3) for _ in range(2))
    seen = [windows.batch(number) for number in range(4)]  # two epochs of ten windows
    assert all(torch.equal(targets, (tokens + 1) % 103) for tokens, targets in seen)
    first, second = (torch.cat([tokens for tokens, _ in seen[begin : begin + 2]]) for begin in (0, 2))
    assert len(first.unique()) == len(second.unique()) == 100
    assert set(first[:, 0].tolist()) != set(second[:, 0].tolist())
    assert all(map(torch.equal, windows.batch(2), again.batch(2)))


def test_nothing_held_out_is_learned():
    """Whole documents are held out where there are enough, else the end of each; together the parts are the text, a
    tenth is held.
    """
    many = [batches.Document(str(number), f"{number:02} " * 100) for number in range(40)]
    learn, held = batches.split(many, seed=1)
    assert sorted(learn + held, key=many.index) == many and len(held) == 4
    few = [batches.Document("a", "abc" * 100), batches.Document("b", "xyz" * 50)]
    learn, held = batches.split(few)
    assert [one.text + other.text for one, other in zip(learn, held)] == [one.text for one in few]
    assert [len(one.text) for one in held] == [30, 15]
    unequal = [batches.Document("long", "a" * 10_000)] + [batches.Document(str(number), "b") for number in range(20)]
    assert sum(len(one.text) for one in batches.split(unequal)[1]) == pytest.approx(1000, rel=0.05)


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
    assert [one.text for one in batches.read([tmp_path, tmp_path / "a.txt"])] == ["one", "two"]
    assert [one.text for one in batches.read([tmp_path / "in" / "*.md"])] == ["two"]


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
    """Evaluations are dots, no line is wider than asked, and ASCII stays ASCII. (Its docstring shows one.)"""
    learned = [(step, 5 / step**0.5) for step in range(1, 301)]
    held = [(step, loss + 0.1) for step, loss in learned[99::100]]
    lines = curve(learned, held, width=30, height=8)
    assert len(lines) == 9 and max(map(len, lines)) == len(lines[-2]) == 30
    assert "".join(lines).count("●") == 3 and lines[0][6:] in "█▇" and lines[-1].split() == ["1", "300"]
    assert "".join(curve(learned, held, unicode=False)).isascii()
    assert curve([]) == [] and len(curve([(1, 2.0)])) == 13


def test_the_picture_is_drawn(tmp_path):
    """A PNG of the size that was asked for, and no draft beside it."""
    plot(tmp_path / "loss.png", [(1, 3.0), (2, 2.0), (3, 1.5)], [(3, 1.6)])
    content = (tmp_path / "loss.png").read_bytes()
    assert content.startswith(b"\x89PNG\r\n") and [entry.name for entry in tmp_path.iterdir()] == ["loss.png"]
    assert int.from_bytes(content[16:20], "big") == 1040


def test_what_cannot_train_is_refused(begin, tmp_path):
    """Empty, binary, missing and short texts, a vocabulary too small, settings that cannot work: each a sentence, and
    no folder.
    """
    faulty = {"empty.txt": b" \n", "binary": b"\x7fELF\0\0", "latin": b"caf\xe9"}
    for name, content in faulty.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "none").mkdir()
    out = tmp_path / "out"
    with refusing() as caught:
        run.begin(out, [tmp_path / name for name in (*faulty, "nowhere.txt", "none")], TINY)
    whats = ["empty file", "not a text file", "not a text file", "no such file", "no text in the folder"]
    assert [reason.what for reason in caught.value.reasons] == whats
    assert "zero bytes" in str(caught.value) and "byte 3" in str(caught.value)
    with refusing("no text"):
        run.begin(out, [], TINY)
    for wishes, wording in (
        ({"context": 4000}, "too little text"),
        ({"context": 300}, "the held-out tenth of the text has 221 tokens"),
        ({"tokenizer": "bpe", "vocabulary": 100}, "the vocabulary is too small"),
        ({"tokenizer": "words"}, "unknown tokenizer"),
        ({"steps": 0}, "steps is too small"),
        ({"learning_rate": math.nan}, "learning_rate is out of range"),
        ({"precision": "half"}, "unknown precision"),
        ({"width": 30, "heads": 4}, "d_model is not divisible by heads"),
        ({"device": "tpu"}, "the device is not available"),
    ):
        with refusing(wording):
            begin("out", **wishes)
    assert not out.exists()


def test_nothing_is_written_over(begin, tmp_path, rhyme):
    """A folder with something in it, a file of that name and an earlier run are refused and left as they are."""
    mine, folder = tmp_path / "mine", tmp_path / "run"
    mine.mkdir()
    (mine / "notes.txt").write_text("mine")
    begin(steps=4)
    before = (folder / checkpoint.NAME).read_bytes()
    for place, wording in (
        ("mine", "the folder is not empty"),
        ("rhyme.txt", "the folder is a file"),
        ("run", "the folder already contains a model"),
    ):
        with refusing(wording):
            begin(place)

    def resume(wording, place=folder, **wishes):
        with refusing(wording):
            run.resume(place, [], wishes)

    resume("--width cannot change when a run is resumed", width=32)
    resume("--seed cannot", seed=5)
    resume("steps is too small", steps=0)
    rhyme.write_text(RHYME[1:])
    resume("the texts have changed")
    assert (folder / checkpoint.NAME).read_bytes() == before
    assert [entry.name for entry in mine.iterdir()] == ["notes.txt"] and rhyme.read_text() == RHYME[1:]
    rhyme.write_text(RHYME)
    (folder / run.LOG).write_text('{"step": 1}\n{step}\n')
    resume("the log cannot be read")
    (folder / run.LOG).write_text('{"step": 1}\n{"st')  # half a line, as a kill leaves it
    list(run.resume(folder, [], {}))
    resume("the run is complete")
    resume("no model in the folder", mine)
    checkpoint.save(tmp_path / "finished", run.resume(folder, [], {"steps": 9}).model)
    resume("the folder does not contain a training run", tmp_path / "finished")


def test_a_training_that_diverges_stops_before_it_spoils_the_weights(begin, tmp_path):
    """A loss that is no number any more is refused; the weights are still finite and the checkpoint is the last good
    one.
    """
    found = begin(steps=4, eval_every=2)
    steps = iter(found)
    next(steps), next(steps)
    before, first = (tmp_path / "run" / checkpoint.NAME).read_bytes(), next(found.model.parameters())
    kept = first.detach().clone()
    first.data.fill_(math.nan)
    with refusing("the training has diverged"):
        next(steps)
    first.data.copy_(kept)
    assert all(weight.isfinite().all() for weight in found.model.parameters())
    assert (tmp_path / "run" / checkpoint.NAME).read_bytes() == before


def test_one_process_trains_in_a_folder(begin, tmp_path):
    """While a run takes steps no other may; one that has fallen behind is refused; a run that was left is free
    again.
    """
    steps = iter(begin(steps=4, eval_every=1))
    next(steps)
    other = run.resume(tmp_path / "run", [], {})
    with refusing("the folder is in use"):
        next(iter(other))
    next(steps)
    steps.close()
    with refusing(r"the run was continued by another process\n.*step 1 here, 2 in"):
        next(iter(other))
    assert [line["step"] for line in run.resume(tmp_path / "run", [], {})] == [3, 4]


def test_generate_refuses_what_it_cannot_write(tmp_path):
    """No folder, a model that does not write, numbers that cannot work, and a prompt that is not text: one sentence
    each.
    """

    def refuses(wording, prompt="x", **wishes):
        with refusing(wording):
            generate(tmp_path, prompt, **wishes)

    refuses("no model in the folder")
    refuses("-n is too small", n=0)
    refuses("the device is not available", device="tpu")
    refuses(r"not UTF-8\n.*byte 1 of the prompt", prompt="a\udcff")
    sizes = {"height": 2, "width": 2, "patch": 1, "d_model": 8, "layers": 1, "heads": 1}
    checkpoint.save(tmp_path, VisionTransformer(VisionConfig(classes=2, **sizes)))
    refuses("not a language model")
    assert "no model in the folder" in refused("generate", str(tmp_path / "nowhere"), "x")


@contextmanager
def full(size: int = 0):
    """Inside, no file of this process becomes longer than this; Python ignores the signal and gets the error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_a_disk_that_takes_no_more_bytes(begin, tmp_path, size):
    """A new run that cannot be saved is refused, and training says which checkpoint is complete; no draft is left, and
    all goes on afterwards.
    """
    wishes = {"steps": 4, "eval_every": 2}
    with full(size), refusing("the checkpoint cannot be written"):
        begin("first", **wishes)
    steps = iter(begin(**wishes))
    next(steps), next(steps)
    with full(size), refusing(r"cannot be written[\s\S]*the checkpoint of step 2 is complete"):
        list(steps)
    steps.close()

    assert list(tmp_path.rglob("*.part")) == []
    assert [line["step"] for line in run.resume(tmp_path / "run", [], {})] == [3, 4]


# ---- over ranks ------------------------------------------------------------------------------------------------------


def losses(folder, name):
    """A number of each line of the log, where the line has it."""
    return {line["step"]: line[name] for line in log(folder) if name in line}


@pytest.mark.sweep
@pytest.mark.slow
def test_losses_do_not_depend_on_the_number_of_ranks(rhyme, tmp_path):
    """Two ranks, then three, then one process continue each other's checkpoints, with dropout: their losses, gradients
    and random states are those of one process that trains alone, and all ranks have the same weights.
    """
    rhyme.write_text(5 * RHYME)
    for number, until in ((2, 2), (3, 4)):
        found = results(number, "tests.models.on_ranks", "trained", tmp_path / "ranks", rhyme, until)
        assert all(each == found[0] for each in found)
    for name, settings in on_ranks.SETTINGS.items():
        whole, folder = tmp_path / "whole" / name, tmp_path / "ranks" / name
        list(run.begin(whole, [rhyme], settings))
        list(run.resume(folder, [], {}))
        for what in ("loss", "norm", "held_out"):
            assert losses(folder, what) == pytest.approx(losses(whole, what), rel=1e-5) != {}, (name, what)
        assert torch.equal(tensors(whole)["random.cpu"], tensors(folder)["random.cpu"])


def workers(process):
    """The process id of each rank that a command has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found = {}
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {int(each.removeprefix(b"RANK=")): int(child) for each in variables if each.startswith(b"RANK=")}
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finding the ranks needs /proc")
def test_a_killed_rank_and_an_interrupt(rhyme, tmp_path):
    """kill -9 of a rank: the command and the other rank name it, no process is left, and the last checkpoint is resumed
    by two ranks, which Ctrl-C lets save at the same step.
    """
    folder, ranks = tmp_path / "run", ["--ranks", "2", "--out", "run"]
    killed = train_process(tmp_path, rhyme, *ranks, "--eval-every", 2, "--steps", 100000, *FLAGS)
    until_steps(folder, killed, 5)
    ids = workers(killed)
    os.kill(ids[1], signal.SIGKILL)
    _, err = killed.communicate(timeout=HANG)
    assert killed.returncode == 1, err
    assert f"regard: rank 1 (process {ids[1]}) was ended by SIGKILL." in err
    assert "regard: rank 0: rank 1 ended during exchange " in err or "regard: rank 0: rank 1 has not begun" in err
    assert len(err.splitlines()) == 2, err
    assert not [process for process in ids.values() if Path(f"/proc/{process}").exists()]

    saved = done(folder)
    assert saved >= 4
    resumed = train_process(tmp_path, *ranks, "--resume")
    until_steps(folder, resumed, saved + 3)
    resumed.send_signal(signal.SIGINT)
    out, err = resumed.communicate(timeout=HANG)
    assert resumed.returncode == 0, err
    assert f"resuming from step {saved}" in out and f"Saved at step {done(folder)} of 100000." in out
    assert list(losses(folder, "loss")) == list(range(1, done(folder) + 1))


@pytest.mark.parametrize(
    "ranks, divide, torchrun, wording",
    [
        (0, None, None, "--ranks is too small"),
        (None, "tokens", None, "there is nothing to divide"),
        (1, "tokens", None, "there is nothing to divide"),
        (2, "layers", None, "--divide is unknown"),
        (3, None, "2", "--ranks differs from the processes of torchrun"),
        (None, None, "1", None),
    ],
)
def test_options_that_contradict_each_other_are_refused(ranks, divide, torchrun, wording, monkeypatch):
    """Numbers of ranks, what they divide, and the processes that torchrun has started: one of them is one alone."""
    if torchrun:
        for name, value in {"RANK": "0", "WORLD_SIZE": torchrun, "MASTER_ADDR": "localhost"}.items():
            monkeypatch.setenv(name, value)
    if wording is None:
        with together(ranks, divide) as team:
            assert type(team) is Alone
        return
    with refusing(wording), together(ranks, divide):
        pass


def test_what_ranks_cannot_train_is_refused():
    """Too many ranks for a batch or a context, and another device."""
    transport = Simulated(0, 3, {}, None)
    for divide, wishes, wording in (
        ("batch", {"batch": 2}, "some ranks have no sequence of a batch"),
        ("tokens", {"context": 383}, "some ranks have no tokens of a sequence"),
        ("batch", {"device": "cuda"}, "several ranks train on the CPU only"),
        ("batch", {"batch": 3, "context": 8}, None),
        ("tokens", {"batch": 1, "context": 384}, None),
    ):
        settings = Settings().changed(wishes)
        with refusing(wording) if wording else nullcontext():
            Ranks(transport, divide).check(settings)
