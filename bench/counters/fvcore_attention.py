"""Shows that fvcore 0.1.5.post20221221 (torch 2.13.0) has no number for SDPA, and counts a multiply-add as one."""

import subject
from fvcore.nn import FlopCountAnalysis
from shown import shown

found = FlopCountAnalysis(subject.model(), subject.ids())
found.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
linear, attention = subject.exact()
shown(
    "fvcore torch",
    {
        "fvcore, multiply-adds": found.total(),
        "fvcore, twice": 2 * found.total(),
        "rg.cost, linear": linear,
        "rg.cost": linear + attention,
        "brute force": sum(subject.brute()),
    },
    wrong=2 * found.total() == linear and "aten::scaled_dot_product_attention" in found.unsupported_ops(),
    exact=(linear, attention) == subject.brute(),
)
