"""Models in files: tensors in safetensors, everything else as JSON beside them in the same file, nothing pickled.

One file holds all, so that one rename makes it valid: whoever reads finds the old one or the new one, never half of
each.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...common.errors import Reason, Refused, refuse
from ..classifier import ClassifierConfig, SequenceClassifier
from ..config import Config
from ..data import vocabulary as vocabularies
from ..encoder_decoder import EncoderDecoder, TranslationConfig
from ..language_model import LanguageModel
from ..vision import VisionConfig, VisionTransformer

__all__ = [
    "NAME",
    "Saved",
    "build",
    "check_free",
    "claim",
    "find",
    "load",
    "read",
    "restore",
    "save",
    "tensors_of",
    "write",
]

NAME = "model.safetensors"
LOCK = ".lock"
MARK = "regard"  # the key in the file's metadata, and with the version below what makes the file ours
VERSION = 1
# Which models a file may name, and what describes each.
KINDS: dict[str, tuple[type[nn.Module], Any]] = {
    "LanguageModel": (LanguageModel, Config),
    "SequenceClassifier": (SequenceClassifier, ClassifierConfig),
    "VisionTransformer": (VisionTransformer, VisionConfig),
    "EncoderDecoder": (EncoderDecoder, TranslationConfig),
}


@dataclass(frozen=True)
class Saved:
    """What a folder holds: the model, its vocabulary (None for one that reads no text), and what else was noted about
    it.
    """

    model: nn.Module
    vocabulary: Any
    about: dict

    @property
    def kind(self) -> str:
        return type(self.model).__name__


def save(
    folder: Path | str, model: nn.Module, *, vocabulary=None, tensors: dict[str, torch.Tensor] | None = None, **about
) -> Path:
    """Writes a model of this package, so that `load` makes it again -> the file.

    `tensors` are kept beside the weights and `about` beside the config: training puts its optimizer and its position
    there.

    >>> import tempfile; from regard.models import Config, LanguageModel
    >>> model = LanguageModel(Config.gpt(vocabulary=257, d_model=16, layers=1, heads=2, context=8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = save(folder, model, steps=0)
    ...     again = load(folder)
    >>> again.about, all(map(torch.equal, model.parameters(), again.model.parameters()))
    ({'steps': 0}, True)
    """
    path = Path(folder) / NAME
    path.parent.mkdir(parents=True, exist_ok=True)
    described = {"kind": type(model).__name__, "config": model.config.to_dict(), "about": about}
    if vocabulary is not None:
        described["vocabulary"] = vocabulary.to_dict()
    weights = {f"model.{name}": tensor for name, tensor in tensors_of(model)}
    write(path, weights | (tensors or {}), described)
    return path


def load(folder: Path | str, where: str = "load", device: str | torch.device = "cpu") -> Saved:
    """The model that `save` wrote into the folder, in evaluation mode."""
    path = find(folder, where)
    tensors, described = read(path, "model.", where)
    return build(tensors, described, path, where, device)


def build(tensors: dict, described: dict, path: Path, where: str, device: str | torch.device = "cpu") -> Saved:
    """The model that a file describes, with the weights that stood in it."""
    if described["kind"] not in KINDS:
        raise refuse(
            where,
            "a model of an unknown kind",
            given=f"{described['kind']!r} in {path}",
            expected=f"one of {', '.join(KINDS)}",
            fix="update regard: a newer version may have written it",
        )
    kind, described_by = KINDS[described["kind"]]
    config = described_by.from_dict(described["config"])
    vocabulary = vocabularies.from_dict(described["vocabulary"]) if "vocabulary" in described else None
    model = kind(config).to(device).eval()
    restore(dict(tensors_of(model)), tensors, "model.", path, where)
    return Saved(model, vocabulary, described["about"])


def find(folder: Path | str, where: str) -> Path:
    """The file of a folder that holds a model."""
    folder = Path(folder)
    path = folder if folder.is_file() else folder / NAME
    if not path.is_file():
        others = sorted(entry.name for entry in folder.iterdir())[:3] if folder.is_dir() else None
        given = f"{folder} is not there" if others is None else f"{folder} holds {', '.join(others) or 'nothing'}"
        raise refuse(
            where,
            "no model in the folder",
            given=given,
            expected=f"a folder with {NAME}",
            fix="check the path, or train one with regard train",
        )
    return path


def check_free(folder: Path, where: str, mend: str) -> None:
    """Nothing is written over: a new model wants a folder with nothing in it but what a killed first write left."""
    other = "choose another with --out"
    if folder.exists() and not folder.is_dir():
        raise refuse(where, "a file is in the way", given=str(folder), expected="the name of a folder", fix=other)
    left = (f".{NAME}.part", LOCK)
    found = sorted(entry.name for entry in folder.iterdir() if entry.name not in left) if folder.exists() else []
    if NAME in found:
        raise refuse(
            where, "a model is in the way", given=f"{folder} holds one already", expected="a new folder", fix=mend
        )
    if found:
        raise refuse(
            where,
            "something is in the way",
            given=f"{folder} holds {', '.join(found[:3])}",
            expected="a new or an empty folder",
            fix=other,
        )


@contextmanager
def claim(folder: Path, where: str) -> Iterator[None]:
    """Keeps the folder for this process as long as the block runs, or the process: a kill frees it too."""
    with (folder / LOCK).open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise refuse(
                where,
                "the folder is in use",
                given=f"another process trains in {folder}",
                expected="one at a time",
                fix="wait for it or stop it, or choose another with --out",
            ) from error
        yield


def tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Everything a model must keep, each tensor once: tied weights stand under their first name."""
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            yield name, tensor.detach()


@torch.no_grad()
def restore(
    into: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor], prefix: str, path: Path, where: str
) -> None:
    """Copies the tensors of a file into those of a model; every name and shape has to agree."""
    found = {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
    wrong = [f"{name} is missing" for name in into.keys() - found.keys()]
    wrong += [f"{name} belongs to no part of the model" for name in found.keys() - into.keys()]
    wrong += [
        f"{name} is {tuple(found[name].shape)}, the config says {tuple(into[name].shape)}"
        for name in into.keys() & found.keys()
        if found[name].shape != into[name].shape
    ]
    if wrong:
        raise Refused(
            where,
            [
                Reason(
                    "weights that do not fit their config",
                    given=f"{path}: {one}",
                    expected="the tensors that the config asks for",
                    fix="use the file as it was written, or an earlier copy",
                )
                for one in sorted(wrong)
            ],
        )
    for name, tensor in into.items():
        tensor.copy_(found[name])


def write(path: Path, tensors: dict[str, torch.Tensor], described: dict) -> None:
    """Writes the file whole or not at all: beside it first, onto the disk, then one rename."""
    from safetensors.torch import save_file

    kept = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(described | {"sums": {name: _sum(tensor) for name, tensor in kept.items()}})
    metadata = {"format": "pt", MARK: str(VERSION), "described": text, "sum": str(zlib.crc32(text.encode()))}
    draft = path.with_name(f".{path.name}.part")
    try:
        save_file(kept, draft, metadata)
        _to_disk(draft)
        draft.replace(path)
        _to_disk(path.parent)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def read(path: Path, prefix: str, where: str) -> tuple[dict[str, torch.Tensor], dict]:
    """The tensors whose names start so, each checked against the sum it was written with, and what the file says about
    them.
    """
    from safetensors import SafetensorError, safe_open

    def damaged(how: str) -> Refused:
        whole, fix = "the file as regard wrote it", "use an earlier copy, or train again"
        return refuse(where, "a damaged model file", given=f"{path}: {how}", expected=whole, fix=fix)

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if MARK not in metadata:
                raise refuse(
                    where,
                    "a file of another program",
                    given=f"{path} does not say that regard wrote it",
                    expected="a model of regard's",
                    fix=(
                        "choose a folder that regard train made; for transformers models there is regard "
                        "look MODEL TEXT"
                    ),
                )
            if metadata[MARK] != str(VERSION):
                raise refuse(
                    where,
                    "a file of another version",
                    given=f"{path} is of version {metadata[MARK]}",
                    expected=f"version {VERSION}",
                    fix="update regard",
                )
            told = metadata.keys() == {"format", MARK, "described", "sum"} and metadata["format"] == "pt"
            if not told or metadata["sum"] != str(zlib.crc32(metadata["described"].encode())):
                raise damaged("the description has changed")
            described = json.loads(metadata["described"])
            tensors = {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
    except SafetensorError as error:
        raise damaged(str(error)) from error
    except OSError as error:
        raise refuse(
            where,
            "the model cannot be read",
            given=f"{path}: {error.strerror}",
            expected="a file that can be read",
            fix="check it",
        ) from error
    for name, tensor in tensors.items():
        if described["sums"].get(name) != _sum(tensor):
            raise damaged(f"{name} has changed")
    return tensors, described


def _sum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy())


def _to_disk(path: Path) -> None:
    """Waits until the file (or the names in a folder) would outlive a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
