"""What torch calls when its import ends: with REGARD_REPLACE_SDPA=1, regard computes torch's attention from then on.
It is beside the package, so that `import torch` does not load regard.
"""

from __future__ import annotations

import os


def start() -> None:
    """Replaces torch's attention in programs that cannot be edited, where the environment says so."""
    if os.environ.get("REGARD_REPLACE_SDPA") == "1":
        from regard.torch.replaced_sdpa import replace_sdpa

        replace_sdpa()
