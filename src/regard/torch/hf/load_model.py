"""Loading a trained model and what reads its inputs, from a folder, the hub or the package of the default model; only
files are read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ...common.default_model import DEFAULT, default_folder
from ...common.errors import Refused, first_line, refuse

__all__ = ["Opened", "opened"]


@dataclass(frozen=True, eq=False)
class Opened:
    """A model, what it is called, and what reads its texts or pictures, where there is one. own: whether it was opened
    here.
    """

    name: str
    model: Any
    tokenizer: Any = None
    own: bool = True

    @property
    def words(self) -> Any:
        """The tokenizer proper, which may be a part of a processor; None where nothing reads words."""
        inner = getattr(self.tokenizer, "tokenizer", self.tokenizer)
        return inner if hasattr(inner, "convert_ids_to_tokens") else None

    @property
    def longest(self) -> int | None:
        """The most tokens that the model takes, or None where it does not say."""
        told = [
            getattr(self.model.config.get_text_config(), "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        ]
        return min((size for size in told if isinstance(size, int) and 0 < size < 1 << 30), default=None)


class Needs(NamedTuple):
    """What a model is opened for."""

    writes: bool | None
    reads: bool
    sees: bool


def opened(
    name: str | Path | None = None, *, writes: bool | None = False, reads: bool = True, sees: bool = False
) -> Opened:
    """The model on regard, in float32, ready to run. name: a folder, a hub id, or None for the MiniLM that comes with a
    package.

    writes: with the head that generates; None: with the head that it was saved with · reads, sees: with what reads
    its texts and pictures. Only files are read: code that a model brings along is never run, weights must be
    safetensors, and those of the default model must be the very ones that were pinned. A model whose attention does not
    go through transformers' interface keeps its own.

    Refused: a model that is not there, files that are damaged, weights that are missing.
    """
    if name is None:
        return _open(str(default_folder()), DEFAULT, True, Needs(writes, reads, sees))
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise refuse(
                "look",
                "not a model folder",
                given=f"{name} holds no config.json",
                expected="a folder written by save_pretrained",
                fix="name the folder in which config.json lies",
            )
        if not any(folder.glob("*.safetensors")):
            raise refuse(
                "look",
                "no weights that can be read safely",
                given=f"{name} holds no .safetensors file",
                expected="weights as safetensors; pickled ones can run code",
                fix="save them with save_pretrained",
            )
        return _open(str(folder), folder.resolve().name, True, Needs(writes, reads, sees))
    words = str(name)
    if folder.exists() or words.startswith((".", "/", "~")) or words.count("/") > 1 or not words.strip():
        raise refuse(
            "look",
            "no such model",
            given=f"{words!r} is not a folder",
            expected="a folder with a model in it, or a hub id such as gpt2",
            fix="check the path",
        )
    return _open(words, words, False, Needs(writes, reads, sees))


def _open(source: str, label: str, local: bool, needs: Needs) -> Opened:
    try:
        import transformers
        from safetensors import SafetensorError

        from . import attention as hf
    except ImportError as error:
        raise refuse(
            "look",
            "models cannot be run",
            given=f"{error}",
            expected="torch and transformers",
            fix="pip install 'regard[hf]'",
        ) from error
    hf.register()
    common = {"local_files_only": local, "trust_remote_code": False}
    try:
        with _quiet():
            config = transformers.AutoConfig.from_pretrained(source, **common)
            reader = _reader(transformers, needs)
            tokenizer = None if reader is None else reader.from_pretrained(source, **common)
            model, found = _loaded(_kind(transformers, config, needs), source, config, common)
    except Refused:
        raise
    except (OSError, KeyError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise refuse(
            "look",
            "the model cannot be loaded",
            given=f"{label}: {first_line(error).rstrip('.')}",
            expected=f"a model that transformers itself can open{', and that writes' if needs.writes else ''}",
            fix="check the name; a hub id needs the network or transformers' cache",
        ) from error
    # transformers fills weights that are not in the file with random numbers; a pooler comes after all attention.
    missing = sorted(key for key in found["missing_keys"] if "pooler" not in key)
    if missing and needs.writes:
        raise refuse(
            "look",
            "a model that does not write",
            given=f"{label}: its file does not hold {missing[0]}",
            expected="a language head",
            fix="name a model that was trained to write, or leave generate= out",
        )
    if missing:
        raise refuse(
            "look",
            "the file does not hold all weights of the model",
            given=f"{label}: {len(missing)} are missing, {missing[0]} first",
            expected="every weight",
            fix="save the whole model with save_pretrained",
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
    """(model, what was found) on regard; on its own code where that does not ask transformers' interface, and is
    watched instead.
    """
    import torch

    from . import attention as hf
    from .recorder import NAME

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
            model, found = load(NAME)
            hf.check(model)
            return model, found
        except Refused:
            pass  # a part of it does not ask
        except KeyError as error:
            if error.args != (NAME,):  # looked up in a table of its own
                raise
    return load("eager")


def _reader(transformers, needs: Needs):
    """The class of what reads texts, pictures or both."""
    if needs.sees:
        return transformers.AutoProcessor if needs.reads else transformers.AutoImageProcessor
    return transformers.AutoTokenizer if needs.reads else None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers and the hub print nothing meanwhile: what goes wrong is said once, by the refusal."""
    import huggingface_hub.utils as hub
    import transformers.utils.logging as own

    levels = own.get_verbosity(), hub.logging.get_verbosity()
    bars = own.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    own.set_verbosity_error()
    hub.logging.set_verbosity_error()
    own.disable_progress_bar()  # those of the hub as well
    try:
        yield
    finally:
        own.set_verbosity(levels[0])
        hub.logging.set_verbosity(levels[1])
        if bars[0]:
            own.enable_progress_bar()
        (hub.enable_progress_bars if bars[1] else hub.disable_progress_bars)()
