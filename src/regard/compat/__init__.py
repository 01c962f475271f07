"""Other libraries' attention functions with regard's kernels, where the libraries themselves do not run.

flash_attn     the functions of flash-attn 2
bert_padding   its functions that pack padded batches
xformers       memory_efficient_attention of xformers.ops, and its biases
sequences      sequences of different lengths in one axis, as rules

`install()` puts them where `import flash_attn` and `import xformers.ops` find them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType

from ..common.errors import Reason, Refused, did_you_mean
from ..common.optional import requires_extra

with requires_extra("regard.compat", "torch"):
    from . import bert_padding, flash_attn, xformers

__all__ = ["bert_padding", "flash_attn", "install", "xformers"]

# The modules of each library, and which of the files here has their functions.
MODULES = {
    "flash_attn": {
        "flash_attn": flash_attn,
        "flash_attn.flash_attn_interface": flash_attn,
        "flash_attn.bert_padding": bert_padding,
        "flash_attn.layers": flash_attn,
        "flash_attn.layers.rotary": flash_attn,
    },
    "xformers": dict.fromkeys(
        ("xformers", "xformers.ops", "xformers.ops.fmha", "xformers.ops.fmha.attn_bias"), xformers
    ),
}


def install(*libraries: str) -> None:
    """Lets `import flash_attn` and `import xformers.ops` find regard's functions, in programs that are not edited.

    Args:
        libraries: "flash_attn", "xformers"; none is both.

    Returns:
        None. Calling it again changes nothing.

    Raises:
        Refused: a library is installed: it is never replaced; or another name. Every problem is listed.

    Examples:
        >>> import regard.compat
        >>> regard.compat.install("flash_attn")
        >>> from flash_attn import flash_attn_func
        >>> from flash_attn.bert_padding import unpad_input
    """
    wanted = [name for name in libraries or MODULES if not getattr(sys.modules.get(name), "regard", False)]
    reasons = []
    for name in wanted:
        if name not in MODULES:
            reasons.append(Reason("no such library", repr(name), ", ".join(MODULES), did_you_mean(name, [*MODULES])))
        elif name in sys.modules or importlib.util.find_spec(name) is not None:
            others = ", ".join(repr(each) for each in MODULES if each != name)
            fix = f"use it, or import regard.compat.{name}; the other one alone: install({others})"
            reasons.append(Reason(f"{name} is installed", f"import {name} works", "a Python without it", fix))
    if reasons:
        raise Refused("install", reasons)
    for name in wanted:
        for path, source in MODULES[name].items():
            module = ModuleType(path, source.__doc__)
            module.__spec__ = importlib.machinery.ModuleSpec(path, None, is_package=True)
            module.__dict__.update({word: vars(source)[word] for word in source.__all__})
            module.__dict__.update(__version__=getattr(source, "__version__", ""), __path__=[], regard=True)
            sys.modules[path] = module
            parent, _, child = path.rpartition(".")
            if parent:
                setattr(sys.modules[parent], child, module)
