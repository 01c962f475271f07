"""Which arguments of a model's call reach its attention, and what regard does with those that it does not compute with.

Models pass on to their attention every argument that they do not name themselves. transformers' own attention functions
ignore whatever they do not know; regard ignores only the names listed here, which belong to another part of the call,
and refuses everything else. An argument that is None is as good as absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...common.errors import Reason

# Arguments that do not affect the result of attention, by what they belong to.
IGNORED: dict[str, tuple[str, ...]] = {
    "the loss": ("ignore_index", "labels", "num_items_in_batch", "shift_labels"),
    "what the model returns": (
        "logits_to_keep",
        "output_hidden_states",
        "output_router_logits",
        "return_dict",
        "use_cache",
    ),
    "other parts of the model, or applied before attention": (
        "cache_params",
        "cache_position",
        "decoder_attention_mask",
        "decoder_input_ids",
        "decoder_inputs_embeds",
        "encoder_hidden_states",
        "image_sizes",
        "inputs_embeds",
        "layer_idx",
        "mm_token_type_ids",
        "past_key_values",
        "position_embeddings",
        "position_ids",
        "special_tokens_mask",
        "token_type_ids",
    ),
    "the speed of other kernels": ("deterministic", "kernel_options"),
}

_EAGER = 'use attn_implementation="eager"'
_PACKED = ("a packed batch described by cumulative lengths", "pack with position_ids that restart at each document")
_PAGED = ("a paged cache of continuous batching", "use model.generate instead of generate_batch")

# Arguments that affect the result and are not supported: what they are, and the fix.
REFUSED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("block_table", "cache", "k_cache", "v_cache"), _PAGED),
    "indices": ("keys chosen per query by an indexer (sparse attention)", _EAGER),
    "block_indices": ("key blocks chosen per query by an indexer (sparse attention)", _EAGER),
    "sinks": ("sinks that differ per query", _EAGER),
    **dict.fromkeys(("cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k", "seq_idx"), _PACKED),
    **dict.fromkeys(
        ("cross_attention_mask", "full_text_row_masked_out_mask"),
        ("a mask that the model passes on without using it", "omit it, or build it into attention_mask"),
    ),
}

_HARMLESS = frozenset(name for names in IGNORED.values() for name in names)


def unsupported(kwargs: Mapping[str, Any]) -> list[Reason]:
    """One reason for each argument that regard does not ignore."""
    reasons = []
    for name, argument in kwargs.items():
        if argument is None or name in _HARMLESS:
            continue
        what, fix = REFUSED.get(
            name, ("an unknown argument, which no part of the model has used", f"omit it, or {_EAGER}")
        )
        reasons.append(
            Reason(
                f"the argument {name} is not supported",
                what,
                "arguments that regard supports, or that do not affect the result",
                fix,
            )
        )
    return reasons
