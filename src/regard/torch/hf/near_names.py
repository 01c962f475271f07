"""Near names: which model may have been meant by a name that is not one, by its spelling."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ...common.default_model import DEFAULT
from ...common.errors import nearest


def near_model(name: str, otherwise: str) -> str:
    """How to fix a model's name: the nearest folder beside it, downloaded model or architecture, or `otherwise`.

    An architecture has no trained weights, so it is not what was meant, but its name helps to find one.

    >>> near_model("lama", "check the name")
    'llama is an architecture, without trained weights: pass a folder, or a hub id such as OWNER/llama'
    """
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    if close := nearest(name, [*_folders(name), *_downloaded()]):
        return f"did you mean {close!r}? Otherwise {otherwise}"
    if _near(name, DEFAULT):
        return f"did you mean {DEFAULT!r}? It is the default: omit the name"
    if name in CONFIG_MAPPING_NAMES:  # gpt2 is a hub id too, bert is not
        return f"{otherwise}; an architecture alone has no trained weights"
    if close := nearest(name.rpartition("/")[2], CONFIG_MAPPING_NAMES):
        such = f"pass a folder, or a hub id such as OWNER/{close}"
        return f"{close} is an architecture, without trained weights: {such}"
    return otherwise


def _near(name: str, known: str) -> bool:
    return nearest(name.lower(), [known.lower(), known.lower().rpartition("/")[2]]) is not None


def _folders(name: str) -> Iterator[str]:
    """The folders of models beside the one that is named, as they would be passed."""
    parent = Path(name).expanduser().parent
    if os.access(parent, os.R_OK | os.X_OK) and parent.is_dir():
        for path in sorted(parent.iterdir()):
            if (path / "config.json").is_file():
                yield str(path)


def _downloaded() -> Iterator[str]:
    """The hub ids of the models in transformers' cache."""
    from huggingface_hub.constants import HF_HUB_CACHE

    folder = Path(HF_HUB_CACHE)
    if folder.is_dir():
        for path in sorted(folder.glob("models--*")):
            yield path.name.removeprefix("models--").replace("--", "/")
