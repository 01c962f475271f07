"""Real processes on gloo: one start for all cases of a number of ranks. One process imports torch and the work, which
takes seconds, and forks into the ranks.
"""

import importlib
import inspect
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT
from tests.support.waiting import HANG


def started(ranks, module, name, *arguments):
    """[(exit status, what `module.name(*arguments)` returned, or yielded last, or None) of each rank]."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.parallel.started", folder, str(ranks), module, name]
        Path(folder, "arguments").write_bytes(pickle.dumps(arguments))
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
        files = [Path(folder, "statuses"), *(Path(folder, f"result {rank}") for rank in range(ranks))]
        statuses, *found = [pickle.loads(each.read_bytes()) if each.exists() else None for each in files]
        return [*zip(statuses, found, strict=True)]


def results(ranks, module, name, *arguments):
    """What each rank returned; all of them have ended well."""
    found = started(ranks, module, name, *arguments)
    assert [status for status, _ in found] == [0] * ranks, found
    return [result for _, result in found]


def main(folder, ranks, module, name):
    """Imports, and becomes each of the ranks; the first process notes how they ended."""
    import torch._dynamo  # noqa: F401, which DTensors and optimizers import
    import torch.distributed as dist

    work, forks = getattr(importlib.import_module(module), name), []
    for rank in range(int(ranks)):
        forks.append(os.fork())
        if not forks[rank]:
            signal.alarm(HANG)
            store = dist.FileStore(f"{folder}/store", int(ranks))
            dist.init_process_group("gloo", store=store, rank=rank, world_size=int(ranks))
            found = work(*pickle.loads(Path(folder, "arguments").read_bytes()))
            for each in found if inspect.isgenerator(found) else [found]:
                Path(folder, f"result {rank}").write_bytes(pickle.dumps(each))
            return dist.destroy_process_group()
    statuses = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in forks]
    Path(folder, "statuses").write_bytes(pickle.dumps(statuses))
    os._exit(0)  # without taking the libraries apart


if __name__ == "__main__":
    main(*sys.argv[1:])
