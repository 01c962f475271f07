"""MiniLM: the trained model that some results of the course look at."""

from __future__ import annotations

from typing import Any

from ..common.default_model import default_folder


def minilm(text: str) -> tuple[Any, Any, list[str]]:
    """The model, without gradients, and the tokens of a text, as numbers (1, n) and as words."""
    from transformers import AutoModel, AutoTokenizer, logging

    logging.disable_progress_bar()
    model = AutoModel.from_pretrained(default_folder()).eval().requires_grad_(False)
    tokenizer = AutoTokenizer.from_pretrained(default_folder())
    tokens = tokenizer(text, return_tensors="pt").input_ids
    return model, tokens, tokenizer.convert_ids_to_tokens(tokens[0])
