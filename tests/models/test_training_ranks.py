"""Training over ranks: losses of one process, other numbers of ranks after a checkpoint, a rank that is killed."""

import os
import signal
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch

from regard.cli.train import together
from regard.models.training import run
from regard.models.training.loop import Settings
from regard.models.training.over_ranks import Alone, Ranks
from tests.models import on_ranks
from tests.models.texts import FLAGS, RHYME, done, log, tensors, train_process, until_steps
from tests.parallel.ranks import Simulated
from tests.parallel.started import results
from tests.support.refusals import refusing
from tests.support.waiting import HANG


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
