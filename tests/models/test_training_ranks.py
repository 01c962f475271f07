"""Training over ranks: losses of one process, other numbers of ranks after a checkpoint, a rank that is killed."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from regard.cli.train.together import together
from regard.common.errors import Refused
from regard.models.training import checkpoint, run
from regard.models.training.over_ranks import Alone, Ranks
from regard.models.training.settings import Settings
from tests.models import on_ranks
from tests.parallel.ranks import Simulated
from tests.parallel.started import started
from tests.support.command import SRC

pytest.importorskip("safetensors", reason="safetensors is not installed")

RHYME = "Round and round the rugged rock the ragged rascal ran.\n" * 200
TINY = ["--layers", "1", "--width", "16", "--heads", "2", "--context", "16", "--batch", "2", "--steps", "100000"]


@pytest.fixture
def rhyme(tmp_path):
    path = tmp_path / "rhyme.txt"
    path.write_text(RHYME)
    return path


def losses(folder, name):
    """A number of each line of the log, where the line has it."""
    lines = [json.loads(line) for line in (folder / run.LOG).read_text().splitlines()]
    return {line["step"]: line[name] for line in lines if name in line}


@pytest.mark.sweep
@pytest.mark.slow
def test_losses_do_not_depend_on_the_number_of_ranks(rhyme, tmp_path):
    """Two ranks, then three, then one process continue each other's checkpoints, with dropout: their losses, gradients
    and random states are those of one process that trains alone, and all ranks have the same weights.
    """
    ranks = tmp_path / "ranks"
    ranks.mkdir()
    for number, until in ((2, 2), (3, 4)):
        found = started(number, "tests.models.on_ranks", "trained", ranks, rhyme, until, seconds=300)
        assert [status for status, _, _ in found] == [0] * number, found
        assert all(each == found[0][1] for _, each, _ in found)
    for name, settings in on_ranks.SETTINGS.items():
        whole, folder = tmp_path / "whole" / name, ranks / name
        list(run.begin(whole, [rhyme], settings))
        list(run.resume(folder, [], {}))
        for what in ("loss", "norm", "held_out"):
            one, several = losses(whole, what), losses(folder, what)
            near = 2e-3 if "bfloat16" in name else 1e-5
            assert several.keys() == one.keys() and one
            assert list(several.values()) == pytest.approx(list(one.values()), rel=near), (name, what)
        states = [checkpoint.read(each / checkpoint.NAME, "", "test")[0]["random.cpu"] for each in (whole, folder)]
        assert torch.equal(*states)


def workers(process):
    """The process id of each rank that a command has started."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    found = {}
    for child in children:
        variables = Path(f"/proc/{child}/environ").read_bytes().split(b"\0")
        found |= {int(each.removeprefix(b"RANK=")): int(child) for each in variables if each.startswith(b"RANK=")}
    return found


def until_steps(folder, process, lines):
    """Waits until the log has this number of lines."""
    log = folder / run.LOG
    while process.poll() is None and not (log.is_file() and log.read_bytes().count(b"\n") >= lines):
        time.sleep(0.01)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finding the ranks needs /proc")
def test_a_killed_rank_and_an_interrupt(rhyme, tmp_path):
    """kill -9 of a rank: the command and the other rank name it, no process is left, and the last checkpoint is resumed
    by two ranks, which Ctrl-C lets save at the same step.
    """
    folder = tmp_path / "run"
    environment = {**os.environ, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1"}

    def start(*arguments):
        command = [sys.executable, "-m", "regard", "train", "--ranks", "2", "--out", str(folder), *arguments]
        return subprocess.Popen(command, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    killed = start(str(rhyme), "--eval-every", "2", *TINY)
    until_steps(folder, killed, 5)
    ranks = workers(killed)
    os.kill(ranks[1], signal.SIGKILL)
    _, err = killed.communicate(timeout=60)
    assert killed.returncode == 1, err
    assert f"regard: rank 1 (process {ranks[1]}) was ended by SIGKILL." in err
    assert "regard: rank 0: rank 1 ended during exchange " in err or "regard: rank 0: rank 1 has not begun" in err
    assert len(err.splitlines()) == 2, err
    assert not [rank for rank, process in ranks.items() if Path(f"/proc/{process}").exists()]

    saved = checkpoint.read(folder / checkpoint.NAME, "none", "test")[1]["about"]["done"]
    assert saved >= 4
    resumed = start("--resume")
    time.sleep(0.5)
    until_steps(folder, resumed, saved + 3)
    resumed.send_signal(signal.SIGINT)
    out, err = resumed.communicate(timeout=60)
    assert resumed.returncode == 0, err
    done = checkpoint.read(folder / checkpoint.NAME, "none", "test")[1]["about"]["done"]
    assert f"resuming from step {saved}" in out and f"Saved at step {done} of 100000." in out
    assert list(losses(folder, "loss")) == list(range(1, done + 1))


def test_what_ranks_cannot_train_is_refused(monkeypatch):
    """Too many ranks for a batch or a context, another device, and options that contradict each other."""
    transport = Simulated(0, 3, {}, None)
    for divide, wishes, wording in (
        ("batch", {"batch": 2}, "some ranks have no sequence of a batch"),
        ("tokens", {"context": 383}, "some ranks have no tokens of a sequence"),
        ("batch", {"device": "cuda"}, "several ranks train on the CPU only"),
    ):
        with pytest.raises(Refused, match=wording):
            Ranks(transport, divide).check(Settings().changed(wishes))
    Ranks(transport, "batch").check(Settings().changed({"batch": 3, "context": 8}))
    Ranks(transport, "tokens").check(Settings().changed({"batch": 1, "context": 384}))
    with pytest.raises(Refused, match="--divide is unknown"):
        Ranks(transport, "layers")
    torchrun = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}
    for ranks, divide, environment, wording in (
        (0, None, {}, "--ranks is too small"),
        (None, "tokens", {}, "there is nothing to divide"),
        (1, "tokens", {}, "there is nothing to divide"),
        (2, "layers", {}, "--divide is unknown"),
        (3, None, torchrun, "--ranks differs from the processes of torchrun"),
    ):
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(Refused, match=wording), together(ranks, divide):
            pass
    monkeypatch.setenv("WORLD_SIZE", "1")
    with together(None, None) as team:
        assert type(team) is Alone
