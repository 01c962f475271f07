"""Families of transformers models on regard and on torch's SDPA: whole models at their real sizes, lowest ratio first.

The weights are random, and the same on both. Nothing is dropped.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from . import whole_models as whole
from .interleave import Pace, Timed, interleaved, seconds

__all__ = ["LINES", "MODELS", "TASKS", "Line", "Model", "measure"]

PACE = Pace(rounds=9, burst=0.1, pause=0.05)
DTYPES = "float32", "bfloat16"


@dataclass(frozen=True)
class Model:
    """A class and a configuration of transformers by name, and what differs from the configuration's defaults."""

    kind: str
    config: str
    settings: dict[str, Any] = field(default_factory=dict)


# The sizes of a model of 768 in 6 layers, in the style of Llama; few words, so that layers dominate the time.
LLAMA = {
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 16384,
}
MINILM = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 12, "intermediate_size": 1536}
WHISPER = {
    f"{part}_{name}": size
    for part in ("encoder", "decoder")
    for name, size in (("layers", 6), ("attention_heads", 8), ("ffn_dim", 2048))
}
MODELS = {
    "MiniLM": Model("AutoModel", "BertConfig", MINILM),
    "BERT base": Model("AutoModel", "BertConfig"),
    "ModernBERT base": Model("AutoModel", "ModernBertConfig"),
    "CLIP, text": Model("AutoModel", "CLIPTextConfig"),
    "ViT base": Model("AutoModel", "ViTConfig"),
    "Swin tiny": Model("AutoModel", "SwinConfig"),
    "T5 small": Model("AutoModelForSeq2SeqLM", "T5Config"),
    "Whisper base": Model("AutoModelForSpeechSeq2Seq", "WhisperConfig", WHISPER | {"d_model": 512}),
    "GPT-2 small": Model("AutoModelForCausalLM", "GPT2Config"),
    "Llama": Model("AutoModelForCausalLM", "LlamaConfig", LLAMA),
    "Mistral, window 256": Model("AutoModelForCausalLM", "MistralConfig", LLAMA | {"sliding_window": 256}),
}


@dataclass(frozen=True)
class Line:
    """A model, its task, the tokens of the input (of images and sound: those that the model makes of them), and how
    many it generates. padding: sequences of different lengths.
    """

    model: str
    task: str
    tokens: int
    new: int = 0
    batch: int = 1
    padding: bool = False

    def __str__(self) -> str:
        if self.task in ("generating", "decoding"):
            return f"{self.model}: {f'{self.new} tokens' if self.new else 'a token'} after {self.tokens}"
        return f"{self.model}: {self.batch} × {self.tokens}{', padding' if self.padding else ''}"


LINES = (
    Line("MiniLM", "forward", 16),
    Line("MiniLM", "forward", 64, batch=32, padding=True),
    Line("MiniLM", "forward", 256, batch=8),
    Line("MiniLM", "training step", 128, batch=8),
    Line("BERT base", "forward", 128, batch=8),
    Line("ModernBERT base", "forward", 512),
    Line("CLIP, text", "forward", 77, batch=4),
    Line("ViT base", "forward", 197),
    Line("ViT base", "forward", 197, batch=4),
    Line("Swin tiny", "forward", 3136),
    Line("T5 small", "forward", 256, batch=4),
    Line("T5 small", "generating", 256, new=32),
    Line("Whisper base", "forward", 1500),
    Line("Whisper base", "generating", 1500, new=16),
    Line("GPT-2 small", "forward", 512),
    *(Line("GPT-2 small", "generating", tokens, new=32) for tokens in (16, 512)),
    *(Line("Llama", "forward", tokens) for tokens in (128, 2048, 8192)),
    *(Line("Llama", "decoding", tokens) for tokens in (128, 2048, 8192)),
    Line("Llama", "training step", 512),
    Line("Mistral, window 256", "forward", 2048),
)


def measure(
    progress: Callable[[str], None], pace: Pace = PACE, lines: tuple[Line, ...] = LINES, shrink: int = 1
) -> list[Timed]:
    """Every line in every dtype, those first where regard is slowest relative to SDPA; shrink divides numbers of
    tokens and of sequences, for a quick test. A result that is less accurate than SDPA's ends the run.
    """
    found: list[Timed] = []
    for dtype in DTYPES:
        for name in dict.fromkeys(line.model for line in lines):
            models = {implementation: _model(name, dtype, implementation) for implementation in ("regard", "sdpa")}
            # One copy of the weights, because their place in memory changes times by ten percent.
            models["sdpa"].load_state_dict(models["regard"].state_dict(), assign=True)
            for line in lines:
                if line.model == name:
                    small = _shrunk(line, models["sdpa"], shrink)
                    progress(f"{small}, {line.task}, {dtype}")
                    found.append(_timed(small, dtype, models, pace))
                    progress(f"{small}, {line.task}, {dtype}: {found[-1].ratio:.2f} × SDPA")
    return sorted(found, key=lambda each: each.ratio)


def _shrunk(line: Line, model, shrink: int) -> Line:
    """Images and sound keep their size. Decoding repeats the first tokens: there must be as many as it has steps."""
    text = model.main_input_name == "input_ids"
    tokens = max(line.tokens // shrink, min(line.tokens, whole.STEPS)) if text else line.tokens
    return replace(line, tokens=tokens, batch=max(line.batch // shrink, 1))


def _model(name: str, dtype: str, implementation: str):
    import torch
    import transformers

    from regard.torch.hf import attention as hf
    from regard.torch.hf.readiness import quiet

    hf.register()
    kind, config = (getattr(transformers, each) for each in (MODELS[name].kind, MODELS[name].config))
    torch.manual_seed(0)
    with quiet():
        model = kind.from_config(
            config(**MODELS[name].settings), dtype=getattr(torch, dtype), attn_implementation=implementation
        )
    if model.can_generate():
        model.generation_config.eos_token_id = None  # every sequence gets all its tokens
        model.generation_config.pad_token_id = 0
        model.generation_config.decoder_start_token_id = 0
    return model.eval()


def _timed(line: Line, dtype: str, models: dict[str, Any], pace: Pace) -> Timed:
    _check(line, dtype, models)
    spans = interleaved(
        {name: TASKS[line.task](model, line, _given(model, line)) for name, model in models.items()}, pace
    )
    share = whole.STEPS if line.task == "decoding" else 1
    return Timed(str(line), dtype, line.task, seconds(spans["regard"]) / share, seconds(spans["sdpa"]) / share)


def _check(line: Line, dtype: str, models: dict[str, Any]) -> None:
    """Raises if the error next to the same weights in float64 exceeds a few times SDPA's and one rounding."""
    import torch

    from bench.model_errors import ALLOWED, Doubled, difference, doubled, floats, worst

    def result(model, given):
        found = TASKS[line.task](model, line, given, checked=True)()
        return found if line.task == "training step" else list(floats(found))

    given = _given(models["sdpa"], line)
    with Doubled():
        exact = result(copy.deepcopy(models["sdpa"]).double(), doubled(given))
    apart = worst if line.task == "training step" else difference
    errors = {name: apart(result(model, given), exact) for name, model in models.items()}
    if not errors["regard"] <= ALLOWED * errors["sdpa"] + torch.finfo(getattr(torch, dtype)).eps:
        raise AssertionError(
            f"{line}, {line.task}, {dtype}: the error is {errors['regard']:.1e}, SDPA's {errors['sdpa']:.1e}"
        )


def _given(model, line: Line) -> dict[str, Any]:
    """The inputs of the model: random tokens, images or sound."""
    import torch

    random, config, name = torch.Generator().manual_seed(1), model.config, model.main_input_name
    if name == "input_ids":
        given = {name: torch.randint(config.vocab_size, (line.batch, line.tokens), generator=random)}
        if line.padding:
            lengths = torch.linspace(max(1, line.tokens // 4), line.tokens, line.batch).long()
            given["attention_mask"] = (torch.arange(line.tokens) < lengths[:, None]).long()
        return given
    sizes = {
        "pixel_values": lambda: (config.num_channels, config.image_size, config.image_size),
        "input_features": lambda: (config.num_mel_bins, 2 * config.max_source_positions),
    }
    return {name: torch.randn(line.batch, *sizes[name](), generator=random).to(model.dtype)}


def _body(model):
    """The model without what makes words of its result; of an encoder and decoder, the encoder."""
    return model.get_encoder() if model.config.is_encoder_decoder else model.base_model


def _forward(model, line: Line, given, checked: bool = False) -> Callable[[], object]:
    import torch

    return torch.no_grad()(lambda: _body(model)(**given))


def _generating(model, line: Line, given, checked: bool = False) -> Callable[[], object]:
    """The most likely token, again and again, after a prompt or after what an encoder made of the input before.

    What is checked are the logits after random tokens, because which token is most likely may depend on rounding.
    """
    import torch
    from transformers import GenerationMixin

    settings: dict[str, Any] = {"max_new_tokens": line.new, "do_sample": False}
    if model.config.is_encoder_decoder:
        given = {"encoder_outputs": _forward(model, line, given)()}
    if checked:
        some = torch.randint(model.config.vocab_size, (1024,), generator=torch.Generator().manual_seed(2)).tolist()
        settings["prefix_allowed_tokens_fn"] = lambda _, tokens: [some[len(tokens)]]
        settings |= {"output_logits": True, "return_dict_in_generate": True}

    def call():
        found = GenerationMixin.generate(model, **given, **settings)  # Whisper's own needs a tokenizer's settings
        return found.logits if checked else found

    return call


def _decoding(model, line: Line, given, checked: bool = False) -> Callable[[], object]:
    return whole.decode(model, given["input_ids"])


def _training(model, line: Line, given, checked: bool = False) -> Callable[[], object]:
    """Forward and backward from random numbers; returns the gradient of every parameter."""
    import torch

    sizes = line.batch, line.tokens, model.config.hidden_size
    dout = torch.randn(sizes, generator=torch.Generator().manual_seed(3)).to(model.dtype)

    def call():
        model.zero_grad(set_to_none=True)
        _body(model)(**given).last_hidden_state.backward(dout)
        return {name: each.grad for name, each in model.named_parameters() if each.grad is not None}

    return call


TASKS: dict[str, Callable[..., Callable[[], object]]] = {
    "forward": _forward,
    "generating": _generating,
    "decoding": _decoding,
    "training step": _training,
}
