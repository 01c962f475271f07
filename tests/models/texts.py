"""A text to learn, a tiny model, and what a training leaves in its folder."""

import json
import os
import subprocess
import sys
import time

from regard.models.training import checkpoint, run
from tests.support.command import SRC

RHYME = "Round and round the rugged rock the ragged rascal ran.\n" * 40
TINY = {"layers": 1, "width": 16, "heads": 2, "context": 16, "batch": 2, "warmup": 2, "dropout": 0.1}
FLAGS = [part for name, value in TINY.items() for part in (f"--{name}", str(value))]


def tensors(folder):
    """Everything in the checkpoint: weights, moments, random states."""
    return checkpoint.read(folder / checkpoint.NAME, "", "test")[0]


def done(folder) -> int:
    """The number of steps in the checkpoint."""
    return checkpoint.read(folder / checkpoint.NAME, "", "test")[1]["about"]["done"]


def log(folder) -> list[dict]:
    """The metrics, without the times."""
    lines = [json.loads(line) for line in (folder / run.LOG).read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in lines]


def train_process(cwd, *arguments) -> subprocess.Popen:
    """`regard train` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "regard", "train", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": SRC, "OMP_NUM_THREADS": "1"},
        cwd=cwd,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def until_steps(folder, process, lines):
    """Waits until the log has this number of lines."""
    metrics = folder / run.LOG
    while process.poll() is None and not (metrics.is_file() and metrics.read_bytes().count(b"\n") >= lines):
        time.sleep(0.001)
