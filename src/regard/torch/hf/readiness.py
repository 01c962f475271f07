"""Whether a model can run on regard: what its parts are set to, and what happens when they run in miniature.

transformers accepts any registered name for any model, and whether the code of a model works with it shows only when
it runs. So `check` runs every kind of part once, as a random model of its class that is small in every size.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch

from ...common.errors import Reason, Refused, first_line
from ...common.module_settings import implementations
from ...observe.recorder import NAME, listening
from .tiny_models import accepted, random_model, tiny_config

EAGER = 'load it with attn_implementation="eager"'


def check(model: torch.nn.Module) -> None:
    """Checks that every part of a model is set to regard and can run on it.

    Each part runs once in miniature: a random model of the same class and the same options, small in every size, on
    made-up inputs. Parts for which no such inputs are known are not tried. A part inside the model that cannot run on
    regard may be set to another implementation. The model itself does not run; use `record` to verify that its calls
    reach regard.

    Args:
        model: a transformers model.

    Returns:
        None, if every part is set to regard that can run on it, and no part that cannot.

    Raises:
        Refused: a part of the model uses another implementation, computes its attention itself, or fails on regard; the
            error lists every problem.

    Examples:
        >>> from transformers import AutoModel, BertConfig
        >>> from regard.torch.hf import check, register
        >>> register()
        >>> config = BertConfig(hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> check(AutoModel.from_config(config, attn_implementation="regard"))
    """
    apart = [part for part in _parts(model) if part is not model and _set_apart(part)]
    reasons = assigned(model, apart) or tried(model, apart)
    if reasons:
        raise Refused("check", reasons)


def assigned(model: torch.nn.Module, besides: Collection[torch.nn.Module] = ()) -> list[Reason]:
    """What is wrong with the implementations that the parts of a model are set to, apart from those of `besides`."""
    reasons = []
    found = implementations(model, besides)
    if found != {NAME}:
        reasons.append(
            Reason(
                "a part of the model does not run on regard",
                f"attn_implementation {', '.join(sorted(found))}",
                f"{NAME!r} everywhere",
                f"regard.torch.hf.register(); model.set_attn_implementation({NAME!r})",
            )
        )
    for kind in {type(module) for module in model.modules() if hasattr(module, "_can_set_attn_implementation")}:
        if not kind._can_set_attn_implementation():
            reasons.append(
                Reason(
                    "this model computes its attention itself",
                    kind.__name__,
                    "a model that calls transformers' attention interface",
                    EAGER,
                )
            )
    return reasons


def tried(model: torch.nn.Module, besides: Collection[torch.nn.Module] = ()) -> list[Reason]:
    """What happens on regard, but not on the model's own attention, when its parts run in miniature."""
    reasons, calls = [], Calls()
    known = {type(part) for part in besides}
    whole_ran = False
    for part in _parts(model):
        if type(part) in known:
            continue
        with torch.random.fork_rng(devices=[]), warnings.catch_warnings(), quiet(), torch.no_grad():
            warnings.simplefilter("ignore")
            made = _miniature(part)
            if made is None:
                continue
            small, given = made
            reached: list[type] = []
            for inner in _parts(small):
                inner.register_forward_pre_hook(lambda inner, _, reached=reached: reached.append(type(inner)))
            small.set_attn_implementation(NAME)
            try:
                with listening(calls):
                    small(**given)
            except Exception as error:  # the model's code may raise anything
                reasons.append(_failed((reached or [type(part)])[-1], error, _fix(model, part)))
            known.update(reached)
            whole_ran |= part is model
    if whole_ran and not calls.number and not reasons:
        reasons.append(
            Reason(
                "no attention call reached regard",
                f"{type(model).__name__}, run once in miniature",
                "a model that calls transformers' attention interface",
                EAGER,
            )
        )
    return reasons


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silences transformers and the hub inside the block; errors are reported by `Refused` only."""
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


class Calls:
    """A listener that counts the calls."""

    number = 0

    def add(self, module, problem) -> None:
        """Called after each call."""
        self.number += 1


def _parts(model: torch.nn.Module) -> Iterator[torch.nn.Module]:
    """The model and the models inside it, the outer ones first."""
    from transformers import PreTrainedModel

    return (module for module in model.modules() if isinstance(module, PreTrainedModel))


def _set_apart(part) -> bool:
    """Whether a part is set to another implementation because it cannot run on regard."""
    return part.config._attn_implementation not in (None, NAME) and bool(tried(part))


def _miniature(part) -> tuple[torch.nn.Module, dict[str, torch.Tensor]] | None:
    """A small random model of the same class on its own attention, and inputs that it accepts; None if none is known.

    First with the options of the model's own configuration, then with those that are the default of its class.
    """
    for like in (part.config, None):
        try:
            small = random_model(type(part), tiny_config(type(part.config), like))
            return small, accepted(small)
        except Exception:  # third-party code, on a configuration and inputs that it was not written for
            continue
    return None


def _fix(model, part) -> str:
    """What to do about a part that cannot run on regard."""
    own = next((name for name in model.config.sub_configs if getattr(model.config, name) is part.config), None)
    if part is model or own is None:
        return EAGER
    return f'set only this part to its own attention: model.set_attn_implementation({{"{own}": "eager"}})'


def _failed(kind: type, error: Exception, fix: str) -> Reason:
    if isinstance(error, Refused):
        reason = error.reasons[0]
        return Reason(reason.what, f"{kind.__name__}: {reason.given}", reason.expected, fix)
    return Reason(
        "this model fails on regard",
        f"{kind.__name__} raises {type(error).__name__}: {first_line(error, 'no message')[:100]}",
        "a model that passes its mask to transformers' attention interface without computing with it",
        fix,
    )


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
    "the speed of other kernels": ("deterministic", "kernel_options", "max_length_k", "max_length_q"),
}

_EAGER = 'use attn_implementation="eager"'

# Arguments that affect the result and are not supported: what they are, and the fix.
REFUSED: dict[str, tuple[str, str]] = {
    "block_indices": ("key blocks chosen per query by an indexer (sparse attention)", _EAGER),
    "sinks": ("sinks that differ per query", _EAGER),
    "seq_idx": ("the documents of a packed batch by number", "pack with position_ids that restart at each document"),
    **dict.fromkeys(
        ("cross_attention_mask", "full_text_row_masked_out_mask"),
        ("a mask that the model passes on without using it", "omit it, or build it into attention_mask"),
    ),
}

# And those that `lazy_mask.by_lengths` reads.
_HARMLESS = frozenset(("cu_seq_lens_q", "cu_seq_lens_k", *(name for names in IGNORED.values() for name in names)))


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
