"""Checkpoints: saves and loads models in safetensors files, with the configuration as JSON in the metadata, without
pickle.

A checkpoint is a single file that is replaced by an atomic rename, so a reader gets the old or the new one, complete.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...common.errors import Reason, Refused, refuse, refuse_all
from ...common.files import output as system
from ...common.files.tensors import system_error
from ..config import Config
from ..data import vocabulary as vocabularies
from ..data.vocabulary import Vocabulary
from ..encoder import ClassifierConfig, SequenceClassifier
from ..encoder_decoder import EncoderDecoder, TranslationConfig
from ..language_model import LanguageModel
from ..vision import VisionConfig, VisionTransformer

NAME = "model.safetensors"
LOCK = ".lock"
MARK = "regard"  # metadata key of files that regard wrote; its value is the version of the format
VERSION = 1
# The model classes that a file may contain, and their configurations.
KINDS: dict[str, tuple[type[nn.Module], Any]] = {
    "LanguageModel": (LanguageModel, Config),
    "SequenceClassifier": (SequenceClassifier, ClassifierConfig),
    "VisionTransformer": (VisionTransformer, VisionConfig),
    "EncoderDecoder": (EncoderDecoder, TranslationConfig),
}


@dataclass(frozen=True)
class Saved:
    """The content of a checkpoint.

    Args:
        model: the model.
        vocabulary: its vocabulary, or None.
        about: the metadata that was passed to `save`.
    """

    model: nn.Module
    vocabulary: Any
    about: dict[str, Any]

    @property
    def kind(self) -> str:
        """The name of the model class."""
        return type(self.model).__name__


def save(
    folder: Path | str,
    model: nn.Module,
    *,
    vocabulary: Vocabulary | None = None,
    tensors: dict[str, torch.Tensor] | None = None,
    **about: Any,
) -> Path:
    """Saves a model of `regard.models` as `model.safetensors` in a folder.

    Args:
        folder: the folder; it is created if necessary. An existing model in it is replaced.
        model: a `LanguageModel`, `SequenceClassifier`, `VisionTransformer` or `EncoderDecoder`.
        vocabulary: the vocabulary of the model, to save with it.
        tensors: other tensors to save, such as the state of an optimizer.
        about: metadata to save: values that can be written as JSON.

    Returns:
        The path of the file.

    Examples:
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
    """Loads the model that `save` wrote.

    Args:
        folder: the folder, or the file in it.
        where: the name that error messages start with.
        device: the device of the weights.

    Returns:
        The model in evaluation mode, with its vocabulary and metadata.

    Raises:
        Refused: the file does not exist, is damaged, or was not written by this version of regard.

    Examples:
        >>> import tempfile; from regard.models import Config, LanguageModel
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = save(folder, LanguageModel(Config(vocabulary=257, d_model=16, layers=1, heads=2)))
        ...     load(folder).kind
        'LanguageModel'
    """
    path = find(folder, where)
    tensors, described = read(path, "model.", where)
    return build(tensors, described, path, where, device)


def build(
    tensors: dict[str, torch.Tensor],
    described: dict[str, Any],
    path: Path,
    where: str,
    device: str | torch.device = "cpu",
) -> Saved:
    """Builds the model of a checkpoint.

    Args:
        tensors, described: the result of `read`.
        path: the file, for error messages.
        where: the name that error messages start with.
        device: the device of the weights.

    Returns:
        The model in evaluation mode, with its vocabulary and metadata.

    Raises:
        Refused: an unknown model class, or weights that do not fit the configuration.
    """
    if described["kind"] not in KINDS:
        raise refuse(
            where,
            "unknown model class",
            f"{described['kind']!r} in {path}",
            f"one of {', '.join(KINDS)}",
            "update regard: the file may have been written by a newer version",
        )
    kind, config_class = KINDS[described["kind"]]
    config = config_class.from_dict(described["config"])
    vocabulary = vocabularies.from_dict(described["vocabulary"]) if "vocabulary" in described else None
    model = kind(config).to(device).eval()
    _restore(model, tensors, path, where)
    return Saved(model, vocabulary, described["about"])


def find(folder: Path | str, where: str) -> Path:
    """Finds the model file of a folder; raises `Refused` if there is none."""
    folder = Path(folder)
    path = folder if folder.is_file() else folder / NAME
    if not path.is_file():
        others = sorted(entry.name for entry in folder.iterdir())[:3] if folder.is_dir() else None
        given = f"{folder} does not exist" if others is None else f"{folder} contains {', '.join(others) or 'no files'}"
        raise refuse(
            where,
            "no model in the folder",
            given,
            f"a folder with {NAME}",
            "check the path, or train a model with regard train or regard classify",
        )
    return path


def check_free(folder: Path, where: str, fix: str) -> None:
    """Checks that a folder is new or empty, apart from the files of an interrupted first write.

    Args:
        folder: the folder for a new model. Existing files are never overwritten.
        where: the name that error messages start with.
        fix: what to do if the folder contains a model.

    Raises:
        Refused: the folder is not empty, or is a file.
    """
    other = "choose another folder with --out"
    if folder.exists() and not folder.is_dir():
        raise refuse(where, "the folder is a file", str(folder), "a folder", other)
    left = (f".{NAME}.part", LOCK)
    names = sorted(entry.name for entry in folder.iterdir() if entry.name not in left) if folder.exists() else []
    if NAME in names:
        raise refuse(where, "the folder already contains a model", str(folder), "a new or empty folder", fix)
    if names:
        raise refuse(
            where,
            "the folder is not empty",
            f"{folder} contains {', '.join(names[:3])}",
            "a new or empty folder",
            other,
        )


@contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Locks a folder for this process while the `with` block runs; the lock ends with the process."""
    with ExitStack() as held:
        try:
            file = held.enter_context((folder / LOCK).open("a"))
            free = system.lock(file.fileno())
        except OSError as error:
            what, given = "the folder cannot be written", f"{folder}: {error.strerror}"
            raise refuse("train", what, given, "a writable folder", "change its permissions") from error
        if not free:
            given, expected = f"another process is training in {folder}", "one process per folder"
            fix = "wait for it or stop it, or choose another folder with --out"
            raise refuse("train", "the folder is in use", given, expected, fix)
        yield


def tensors_of(model: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Iterates over the names and tensors of a model's state; tied weights occur once, under their first name."""
    known: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in known:
            known.add(id(tensor))
            yield name, tensor.detach()


@torch.no_grad()
def _restore(model: nn.Module, tensors: dict[str, torch.Tensor], path: Path, where: str) -> None:
    """Copies the weights of a file into a model; a refusal lists every name and shape that does not match."""
    own = dict(tensors_of(model))
    stored = {name.removeprefix("model."): tensor for name, tensor in tensors.items() if name.startswith("model.")}
    wrong = [f"{name} is missing" for name in own.keys() - stored.keys()]
    wrong += [f"{name} is not a weight of the model" for name in stored.keys() - own.keys()]
    wrong += [
        f"{name} has shape {tuple(stored[name].shape)}, expected {tuple(tensor.shape)}"
        for name, tensor in own.items()
        if name in stored and stored[name].shape != tensor.shape
    ]
    refuse_all(
        where,
        [
            Reason(
                "the weights do not fit the configuration",
                f"{path}: {problem}",
                "the tensors of the configuration",
                "restore the original file, or use an earlier copy",
            )
            for problem in sorted(wrong)
        ],
    )
    for name, tensor in own.items():
        tensor.copy_(stored[name])


def write(path: Path, tensors: dict[str, torch.Tensor], described: dict[str, Any]) -> None:
    """Writes a checkpoint atomically: to a temporary file in the same folder, flushed to disk, then renamed.

    Args:
        path: the file.
        tensors: the tensors by name.
        described: the model class, configuration, vocabulary and metadata.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    contiguous = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(described | {"sums": {name: _sum(tensor) for name, tensor in contiguous.items()}})
    metadata = {"format": "pt", MARK: str(VERSION), "described": text, "sum": str(zlib.crc32(text.encode()))}
    draft = path.with_name(f".{path.name}.part")
    try:
        try:
            save_file(contiguous, draft, metadata)
        except SafetensorError as error:
            raise system_error(str(error), path) from error
        system.to_disk(draft)
        draft.replace(path)
        system.to_disk(path.parent)
    finally:
        with suppress(FileNotFoundError):
            draft.unlink()


def read(path: Path, prefix: str, where: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Reads a checkpoint and verifies its checksums.

    Args:
        path: the file.
        prefix: read only tensors whose names start with it.
        where: the name that error messages start with.

    Returns:
        The tensors by name, and the description that was passed to `write`.

    Raises:
        Refused: a file that cannot be read, is damaged, or was not written by this version of regard.
    """
    from safetensors import SafetensorError, safe_open

    def damaged(how: str) -> Refused:
        whole, fix = "an unchanged file", "use an earlier copy, or train again"
        return refuse(where, "the model file is damaged", f"{path}: {how}", whole, fix)

    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            if MARK not in metadata:
                raise refuse(
                    where,
                    "the file was not written by regard",
                    str(path),
                    "a model that regard saved",
                    "pass a folder of regard train or regard classify; a transformers model also has a config.json",
                )
            if metadata[MARK] != str(VERSION):
                raise refuse(
                    where,
                    "unknown format version",
                    f"version {metadata[MARK]} in {path}",
                    f"version {VERSION}",
                    "update regard",
                )
            complete = metadata.keys() == {"format", MARK, "described", "sum"} and metadata["format"] == "pt"
            if not complete or metadata["sum"] != str(zlib.crc32(metadata["described"].encode())):
                raise damaged("the metadata has changed")
            described = json.loads(metadata["described"])
            tensors = {name: file.get_tensor(name) for name in file.keys() if name.startswith(prefix)}  # noqa: SIM118
    except SafetensorError as error:
        raise damaged(str(error)) from error
    except OSError as error:
        raise refuse(
            where,
            "the model cannot be read",
            f"{path}: {error.strerror}",
            "a readable file",
            "check the path and its permissions",
        ) from error
    for name, tensor in tensors.items():
        if described["sums"].get(name) != _sum(tensor):
            raise damaged(f"{name} has changed")
    return tensors, described


def _sum(tensor: torch.Tensor) -> int:
    return zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy())
