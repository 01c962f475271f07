"""Other libraries' attention functions with regard's kernels, where the libraries themselves do not run.

flash_attn     the functions of flash-attn 2
bert_padding   its functions that pack padded batches

`install()` puts them where `import flash_attn` finds them.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from types import ModuleType

from ..common.errors import refuse
from ..common.optional import requires_extra

with requires_extra("regard.compat", "torch"):
    from . import bert_padding, flash_attn

__all__ = ["bert_padding", "flash_attn", "install"]

# The modules of the library, and which functions they have.
MODULES = {
    "flash_attn": flash_attn,
    "flash_attn.flash_attn_interface": flash_attn,
    "flash_attn.bert_padding": bert_padding,
}


def install() -> None:
    """Lets `import flash_attn` find regard's functions, in programs that are not edited.

    Returns:
        None. Calling it again changes nothing.

    Raises:
        Refused: flash_attn is installed; it is never replaced.

    Examples:
        >>> import regard.compat
        >>> regard.compat.install()
        >>> from flash_attn import flash_attn_func
        >>> from flash_attn.bert_padding import unpad_input
    """
    known = sys.modules.get("flash_attn")
    if known is not None and getattr(known, "regard", False):
        return
    if known is not None or importlib.util.find_spec("flash_attn") is not None:
        raise refuse(
            "install",
            "flash_attn is installed",
            str(getattr(known, "__file__", None) or importlib.util.find_spec("flash_attn")),
            "a Python without it",
            "use it, or import regard.compat.flash_attn",
        )
    for name, source in MODULES.items():
        module = ModuleType(name, source.__doc__)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=name == "flash_attn")
        module.__dict__.update({word: value for word, value in vars(source).items() if not word.startswith("_")})
        module.__dict__.update(__version__=flash_attn.__version__, __path__=[], regard=True)
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        if parent:
            setattr(sys.modules[parent], child, module)
