"""Loads a trained model and its tokenizer or processor by name, and suggests names that are near."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ...common.default_model import DEFAULT, default_folder
from ...common.errors import Refused, first_line, nearest, refuse
from ...observe.recorder import NAME
from . import attention as hf
from .readiness import assigned, quiet


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


WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.h5", "*.msgpack", "*.gguf")  # files that are not read
LARGEST = 4e9  # bytes of a model with random weights
NETWORK = "check the name; a hub id needs the network or transformers' cache"


@dataclass(frozen=True, eq=False)
class Opened:
    """A model, its name, and its tokenizer or processor, if any. own: whether it was loaded here."""

    name: str
    model: Any
    tokenizer: Any = None
    own: bool = True

    @property
    def words(self) -> Any:
        """The tokenizer itself, which may be a part of a processor; None without a tokenizer."""
        inner = getattr(self.tokenizer, "tokenizer", self.tokenizer)
        return inner if hasattr(inner, "convert_ids_to_tokens") else None

    @property
    def longest(self) -> int | None:
        """The maximum number of tokens of the model, or None if it is not specified."""
        limits = [
            getattr(self.model.config.get_text_config(), "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        ]
        return min((size for size in limits if isinstance(size, int) and 0 < size < 1 << 30), default=None)


class Needs(NamedTuple):
    """What a model is loaded for: generation, text input, image input."""

    writes: bool | None
    reads: bool
    sees: bool


def opened(
    name: str | Path | None = None,
    *,
    writes: bool | None = False,
    reads: bool = True,
    sees: bool = False,
    bare: bool = False,
) -> Opened:
    """The model on regard, in float32, ready to run. name: a folder, a hub id, or None for the default model (MiniLM).

    writes: whether to load the language head; None loads the head that the model was saved with · reads, sees: whether
    to load the tokenizer and the image processor. Code in a model's repository is never run, weights must be
    safetensors, and those of the default model must have the pinned checksum. A model that does not use transformers'
    attention interface runs on its own attention. bare: whether a folder with a configuration alone gets a model with
    random weights, whose name says so.

    Raises `Refused` if the model does not exist, a file is damaged, or weights are missing.
    """
    if name is None:
        return _open(str(default_folder()), DEFAULT, True, Needs(writes, reads, sees))
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            trained = (folder / "model.safetensors").is_file()
            raise refuse(
                "look",
                "not a model folder",
                f"{name} has no config.json; it contains {_listed(folder)}",
                "config.json and .safetensors files (transformers); regard look also opens the folders of "
                "regard train and regard classify",
                f"regard look {name} --save RUN records it, then pass RUN" if trained else "check the path",
            )
        if not any(folder.glob("*.safetensors")):
            if bare and not [each for form in WEIGHTS for each in folder.glob(form)]:
                return _untrained(folder)
            raise refuse(
                "look",
                "no weights that can be read safely",
                f"{name} has no .safetensors file",
                "weights as safetensors; pickle files can run code",
                "save them with save_pretrained",
            )
        return _open(str(folder), folder.resolve().name, True, Needs(writes, reads, sees))
    words = str(name)
    if folder.exists() or words.startswith((".", "/", "~")) or words.count("/") > 1 or not words.strip():
        raise refuse(
            "look",
            "no such model",
            f"{words!r} is not a folder",
            "a folder with a model, or a hub id such as gpt2",
            near_model(words, "check the path"),
        )
    return _open(words, words, False, Needs(writes, reads, sees))


def _untrained(folder: Path) -> Opened:
    """A model of a configuration, with random weights."""
    import transformers

    with quiet():
        config = transformers.AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        kind = _kind(transformers, config, Needs(None, False, False))
        make = getattr(kind, "from_config", kind)
        with torch.device("meta"):
            size = sum(4 * each.numel() for each in make(config).parameters())
        if size > LARGEST:
            raise refuse(
                "look",
                "the model is large, and has no weights",
                f"{folder}: {size / 1e9:.0f} GB in float32",
                f"a configuration of at most {LARGEST / 1e9:.0f} GB",
                "copy the folder, and lower num_hidden_layers in its config.json: two layers show the code",
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = make(config)
    return Opened(f"{folder.resolve().name} (a configuration alone: random weights)", model.eval())


def _listed(folder: Path) -> str:
    """The first names in a folder."""
    names = sorted(entry.name for entry in folder.iterdir())
    return ", ".join(names[:3]) + (" …" if len(names) > 3 else "") if names else "no files"


def _open(source: str, label: str, local: bool, needs: Needs) -> Opened:
    import transformers
    from safetensors import SafetensorError

    hf.register()
    common = {"local_files_only": local, "trust_remote_code": False}
    try:
        with quiet():
            config = transformers.AutoConfig.from_pretrained(source, **common)
            reader = _reader(transformers, needs)
            tokenizer = None if reader is None else reader.from_pretrained(source, **common)
            model, report = _loaded(_kind(transformers, config, needs), source, config, common)
    except Refused:
        raise
    except (OSError, KeyError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise refuse(
            "look",
            "the model cannot be loaded",
            f"{label}: {first_line(error).rstrip('.')}",
            f"a model that transformers can load{', with a language head' if needs.writes else ''}",
            "check the folder; it needs a tokenizer or processor as well" if local else near_model(label, NETWORK),
        ) from error
    # transformers initializes weights that are not in the file randomly; a pooler has no effect on attention.
    missing = sorted(key for key in report["missing_keys"] if "pooler" not in key)
    if missing and needs.writes:
        raise refuse(
            "look",
            "a model that does not write",
            f"{label}: its file does not contain {missing[0]}",
            "a language head",
            "pass a language model, or omit generate=",
        )
    if missing:
        raise refuse(
            "look",
            "the file does not contain all weights of the model",
            f"{label}: {len(missing)} are missing, {missing[0]} first",
            "every weight",
            "save the whole model with save_pretrained",
        )
    return Opened(label, model.eval(), tokenizer)


def _kind(transformers, config, needs: Needs):
    """The class of the model."""
    if needs.writes is None:
        saved = getattr(transformers, (config.architectures or [""])[0], None)
        return (
            saved
            if isinstance(saved, type) and issubclass(saved, transformers.PreTrainedModel)
            else transformers.AutoModel
        )
    if needs.writes:
        return transformers.AutoModelForSeq2SeqLM if config.is_encoder_decoder else transformers.AutoModelForCausalLM
    return transformers.AutoModel


def _loaded(kind, source: str, config, common: dict[str, bool]):
    """(model, loading report) on regard, or on its own attention if it does not use transformers' interface."""
    mapped = getattr(kind, "_model_mapping", None)
    known = kind if mapped is None else mapped[type(config)]

    def load(implementation: str):
        return kind.from_pretrained(
            source,
            config=config,
            attn_implementation=implementation,
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **common,
        )

    if all(each._can_set_attn_implementation() for each in (known if isinstance(known, tuple) else (known,))):
        try:
            model, report = load(NAME)
            if not assigned(model):  # otherwise a part of it does not use the interface
                return model, report
        except KeyError as error:
            if error.args != (NAME,):  # the model has its own table of implementations
                raise
    return load("eager")


def _reader(transformers, needs: Needs):
    """The class of the tokenizer, the image processor, or a processor for both."""
    if needs.sees:
        return transformers.AutoProcessor if needs.reads else transformers.AutoImageProcessor
    return transformers.AutoTokenizer if needs.reads else None
