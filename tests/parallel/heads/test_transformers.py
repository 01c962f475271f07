"""transformers' tensor-parallel plan with attn_implementation="regard": two processes give what one gives."""

import subprocess
import sys

import pytest

from tests import ROOT
from tests.parallel.heads import tiny_llama
from tests.support.waiting import HANG


@pytest.mark.sweep
def test_a_llama_over_two_processes(tmp_path):
    """Under torchrun, from_pretrained with tp_plan="auto": logits, training with dropout, a mask by head."""
    pytest.importorskip("accelerate")
    tiny_llama.save(str(tmp_path))
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    script = ["-m", "tests.parallel.heads.tiny_llama", str(tmp_path)]
    done = subprocess.run([*torchrun, *script], cwd=ROOT, capture_output=True, text=True, timeout=HANG, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    assert all(f"rank {rank} of 2: equal" in done.stdout for rank in range(2)), done.stdout
