"""The default model in NumPy, without torch: BERT as in its paper, from its own files, so that a first run takes a
second.

    h = LayerNorm(word + position + type) · h ← LayerNorm(h + W_o attention(h W_q, h W_k, h W_v)) · h ← LayerNorm(h + W₂
    gelu(W₁ h))

Source: Devlin et al. 2019; Wang et al. 2020 (MiniLM).
"""

from __future__ import annotations

import functools
import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ...api.attention import attention
from ...common.default_model import DEFAULT, default_folder
from ...common.errors import refuse
from ...common.files.tensors import mapped
from ...engines.choice import choose, of_one_call
from ...language.problem import Problem
from ..runs.axis import Axis
from ..runs.projections import LayerProjections, Projection
from ..runs.run import Run
from .keeper import Axes, Keeper, RecordingOptions, hash_of, keeping, unmeasured
from .token_text import fit, spelled, unknown

# Abramowitz and Stegun 7.1.26: erf within 1.5e-7.
ERF = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)


@dataclass(frozen=True, eq=False)
class DefaultModel:
    """The default model, which records one text after another: its settings, its tokenizer, and its weights by name."""

    config: dict[str, Any]
    reader: Any
    weights: dict[str, np.ndarray]

    @classmethod
    def open(cls) -> DefaultModel:
        """The model of the installed package, which is read once. Refused: other weights."""
        return _read(default_folder())

    def record(self, text: str, options: RecordingOptions) -> Run:
        """The run of a text. Refused: a text without words, or longer than the model allows."""
        if options.entry:
            raise refuse(
                "look",
                "no such batch entry",
                f"entry={options.entry} of one text",
                "0",
                "leave entry= out, or pass a list of texts",
            )
        encoded = self.reader.encode(text)
        fit(text, encoded.special_tokens_mask, self.config["max_position_embeddings"], DEFAULT)
        tokenizer = SimpleNamespace(  # what `spelled` and `unknown` read of a tokenizer of transformers
            convert_ids_to_tokens=lambda ids: [self.reader.id_to_token(number) for number in ids],
            convert_tokens_to_string=self.reader.decoder.decode,
            unk_token_id=self.reader.token_to_id("[UNK]"),
        )
        axis = Axis.of(
            spelled(tokenizer, encoded.ids, encoded.offsets),
            encoded.special_tokens_mask,
            ids=encoded.ids,
            unknown=unknown(tokenizer, text, encoded.ids, encoded.offsets),
        )
        layers = range(self.config["num_hidden_layers"])

        def alike(_: str) -> int:
            return sum(options.selects(_name(layer), layer) for layer in layers)

        with keeping(options, Axes({"text": axis}), alike) as keeper:
            self._forward(np.array(encoded.ids), keeper)
            known = {"implementation": ["regard"], **({"weights": self.hash} if options.hashed else {})}
            return keeper.run(DEFAULT, text, (), known)

    @functools.cached_property
    def hash(self) -> str:
        """The hash of the weights, without the positions 0, 1, 2, …, which transformers does not treat as weights."""
        names = self.weights.keys() - {"embeddings.position_ids"}
        return hash_of([(name, str(self.weights[name].dtype), self.weights[name]) for name in names])

    def _forward(self, ids: np.ndarray, keeper: Keeper) -> None:
        """Runs the model, and records the selected layers."""
        config, weights = self.config, self.weights
        heads = config["num_attention_heads"]

        def linear(x: np.ndarray, name: str) -> np.ndarray:
            return x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

        def normed(x: np.ndarray, name: str) -> np.ndarray:
            away = x - x.mean(-1, keepdims=True)
            scaled = away / np.sqrt((away**2).mean(-1, keepdims=True) + config["layer_norm_eps"])
            return scaled * weights[f"{name}.LayerNorm.weight"] + weights[f"{name}.LayerNorm.bias"]

        table = "embeddings.{}_embeddings.weight".format
        h = weights[table("word")][ids] + weights[table("position")][: len(ids)] + weights[table("token_type")][0]
        h = normed(h, "embeddings")
        for layer in range(config["num_hidden_layers"]):
            at, name = f"encoder.layer.{layer}", _name(layer)
            q, k, v = (
                linear(h, f"{at}.attention.self.{part}").reshape(len(ids), heads, -1).swapaxes(0, 1)
                for part in ("query", "key", "value")
            )
            begin = time.perf_counter()
            engine = choose(Problem.of(q, k, v), of_one_call(heads * len(ids) ** 2))[0]
            out = attention(q, k, v, engine=engine)
            seconds = time.perf_counter() - begin
            y = linear(out.swapaxes(0, 1).reshape(len(ids), -1), f"{at}.attention.output.dense")
            if keeper.options.selects(name, layer):
                scale = 1 / math.sqrt(q.shape[-1])
                notes = {"kind": "regard.attention", "seconds": seconds, "dtype": "float32"}
                call = unmeasured(
                    name,
                    layer,
                    q=np.ascontiguousarray(q),
                    k=np.ascontiguousarray(k),
                    v=np.ascontiguousarray(v),
                    out=out,
                    x=h,
                    scale=scale,
                    engine=f"regard {engine}",
                    notes=notes | {"scale": scale, "causal": False},
                    projections=self._projections(at, y),
                )
                keeper.admit(call)
                keeper.add(call)
            else:
                keeper.unselected.add(name)
            h = normed(h + y, f"{at}.attention.output")
            h = normed(h + linear(_gelu(linear(h, f"{at}.intermediate.dense")), f"{at}.output.dense"), f"{at}.output")

    def _projections(self, at: str, y: np.ndarray) -> LayerProjections:
        """The matrices of a layer, which stay in the file of the model."""

        def of(name: str, *sizes: int) -> Projection:
            w, b = (self.weights[f"{at}.attention.{name}.{part}"] for part in ("weight", "bias"))
            return Projection(w.reshape(*sizes, w.shape[-1]), b.reshape(sizes))

        q, k, v = (of(f"self.{part}", self.config["num_attention_heads"], -1) for part in ("query", "key", "value"))
        return LayerProjections(q, k, v, of("output.dense", y.shape[-1]), y)


@functools.lru_cache(maxsize=1)
def _read(folder: Path) -> DefaultModel:
    """Reads the settings and the tokenizer, and maps the weights into memory."""
    import tokenizers

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    reader = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    reader.no_truncation()
    reader.no_padding()
    return DefaultModel(config, reader, mapped(folder / "model.safetensors", "look"))


def _name(layer: int) -> str:
    return f"encoder.layer.{layer}.attention.self"


def _gelu(x: np.ndarray) -> np.ndarray:
    """x · Φ(x)."""
    z = np.abs(x) * np.float32(math.sqrt(0.5))
    t = 1 / (1 + np.float32(0.3275911) * z)
    erf = 1 - np.polyval([*ERF[::-1], 0], t).astype(np.float32) * np.exp(-z * z)
    return x * (1 + np.copysign(erf, x)) / 2
