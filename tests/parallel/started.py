"""Real processes on gloo: one start for all cases of a number of ranks, because importing torch takes seconds."""

import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import ROOT
from tests.support.waiting import HANG

OUTPUT = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}


def started(ranks, module, name, *arguments):
    """[(exit status, what `module.name(*arguments)` returned, or yielded last, or None, what was printed) of each]."""
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "tests.parallel.started", folder, str(ranks), module, name]
        Path(folder, "arguments").write_bytes(pickle.dumps(arguments))
        running = [
            subprocess.Popen([*command, str(rank)], env=environment, cwd=ROOT, text=True, **OUTPUT)
            for rank in range(ranks)
        ]
        try:
            said = [each.communicate(timeout=HANG)[0] for each in running]
        finally:
            for each in running:
                each.kill()
        results = [Path(folder, f"result {rank}") for rank in range(ranks)]
        found = [pickle.loads(each.read_bytes()) if each.exists() else None for each in results]
        return [(each.returncode, one, text) for each, one, text in zip(running, found, said, strict=True)]


def results(ranks, module, name, *arguments):
    """What each rank returned; all of them have ended well."""
    found = started(ranks, module, name, *arguments)
    assert [status for status, _, _ in found] == [0] * ranks, found
    return [result for _, result, _ in found]


def main(folder, ranks, module, name, rank):
    """One rank."""
    import importlib
    import inspect

    import torch.distributed as dist

    store = dist.FileStore(f"{folder}/store", int(ranks))
    dist.init_process_group("gloo", store=store, rank=int(rank), world_size=int(ranks))
    work = getattr(importlib.import_module(module), name)
    found = work(*pickle.loads(Path(folder, "arguments").read_bytes()))
    for each in found if inspect.isgenerator(found) else [found]:
        Path(folder, f"result {rank}").write_bytes(pickle.dumps(each))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
