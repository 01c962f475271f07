"""FlexAttention raises IndexError for 0 keys; compiled with dynamic shapes, the process ends with a signal."""

import subprocess
import sys

call = "import torch; from torch.nn.attention.flex_attention import flex_attention as f; x = torch.ones(1, 1, 3, 8);"
for name, code in (("eager", "f(x, x[:, :, :0], x[:, :, :0])"),
                   ("compiled", "torch.compile(f, dynamic=True)(x, x[:, :, :0], x[:, :, :0])")):  # fmt: skip
    done = subprocess.run([sys.executable, "-c", call + code], capture_output=True, text=True, timeout=120)
    print(name, done.returncode, done.stderr[-100:])
    assert "IndexError" in done.stderr if name == "eager" else done.returncode < 0
