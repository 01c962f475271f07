"""What an audit was given, as a Subject: a model of transformers and a text, or any torch module and its inputs."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..common.errors import Refused, first_line, refuse
from .causality import causality
from .subject import Mask, Subject, seeded

__all__ = ["of_module", "of_name", "of_transformers"]

DRAWN, WRITTEN = 23, 19  # tokens that are drawn where no text is given: primes, so that no other axis is as long

# Inputs that say which positions count, by name: (seen, padding).
MASKS: dict[str, tuple[bool | int, bool | int]] = {
    "attention_mask": (1, 0),
    "padding_mask": (True, False),
    "key_padding_mask": (False, True),
    "src_key_padding_mask": (False, True),
}


def of_name(name: str | Path | None, text: str | None = None, causal: bool | None = None) -> Subject:
    """The model in a folder or on the hub, with the head that it was saved with, on the attention that transformers
    chooses.
    """
    from ..torch.hf.load_model import opened

    found = opened(name, writes=None, reads=text is not None)
    try:
        found.model.set_attn_implementation("sdpa")
    except ValueError:  # this architecture has none
        found.model.set_attn_implementation("eager")
    return of_transformers(found.model, found.tokenizer, text, None, causal, found.name)


def of_transformers(
    model, tokenizer=None, text: str | None = None, inputs=None, causal: bool | None = None, name: str = ""
) -> Subject:
    """A model of transformers with a text, with inputs as its forward takes them, or with tokens drawn at random.

    Refused: a text without a tokenizer, and a model that runs with none of the inputs that are known for its kind.
    """
    takes = frozenset(inspect.signature(model.forward).parameters)
    fixed = {"use_cache": False} if "use_cache" in takes else {}
    ids = _ordinary(model, tokenizer)
    declared, why = causality(model, causal)
    rest = {
        "fixed": fixed,
        "ids": ids,
        "causal": declared,
        "why": why,
        "takes": takes,
        "whole": True,
        "pad": _pad(model, tokenizer),
    }
    if text is not None and inputs is not None:
        raise refuse(
            "audit",
            "a text and inputs",
            given=f"{text[:20]!r} and {type(inputs).__name__}",
            expected="one of them",
            fix="leave one out",
        )
    if text is not None and tokenizer is None:
        raise refuse(
            "audit",
            "a text without a tokenizer",
            given=f"{text[:20]!r} for {type(model).__name__}",
            expected="a tokenizer that goes with it",
            fix="give tokenizer=, or inputs= as the model's forward takes them",
        )
    tried: Iterable[dict[str, Any]] = [_named(inputs)] if inputs is not None else _drawn(model, takes, ids)
    if text is not None:
        tried = [_tokenized(tokenizer, text, takes, ids)]
    failed: Exception | None = None
    for given in tried:
        moved = {key: part.to(model.device) for key, part in given.items()}
        sequence = next((key for key in ("decoder_input_ids", "input_ids", "inputs_embeds") if key in moved), None)
        source = next((key for key in ("input_ids", "inputs_embeds") if key in moved), None)
        if inputs is not None and sequence is not None and moved[sequence].shape[0] != 1:
            raise _several(sequence, moved[sequence])
        mask = Mask("attention_mask", source) if source and "attention_mask" in takes else None
        made = Subject(
            model=model, name=name or type(model).__name__, given=moved, sequence=sequence, mask=mask, **rest
        )
        try:
            made.run(made.given)
        except Exception as error:  # somebody else's code: it may refuse an input with any error
            failed = failed or error
        else:
            return made
    raise refuse(
        "audit",
        "the model does not run",
        given=f"{type(model).__name__}: {first_line(failed) if failed else 'no inputs are known for its kind'}",
        expected="inputs that its forward takes",
        fix="give inputs=, tensors by name, batch first",
    ) from failed


def of_module(module, inputs, causal: bool | None = None, name: str = "") -> Subject:
    """Any torch module (or function of tensors) with its inputs: one tensor, several in order, or tensors by name;
    batch first.

    The sequence is the first tensor of the shape (1, positions, …). A function of q, k, v (1, heads, positions, depth)
    is asked about their positions.

    Refused: no tensor, no input of one entry, and q and k of different lengths.
    """
    import torch

    given = _named(inputs)
    name = name or getattr(module, "__name__", type(module).__name__)
    tensors = {key: part for key, part in given.items() if isinstance(part, torch.Tensor)}
    if not tensors:
        raise refuse(
            "audit",
            "no inputs",
            given=f"{type(inputs).__name__} for {name}",
            expected="tensors, batch first",
            fix="give inputs=x, inputs=(x, y) or inputs={'x': x}",
        )
    if not isinstance(module, torch.nn.Module) and [part.ndim for part in tensors.values()] == [4, 4, 4]:
        module = OfPositions(module, tensors)
        tensors = {"x": module.joined}
    main = [key for key, part in tensors.items() if key not in MASKS and part.ndim > 1]
    sequence = next((key for key in main if tensors[key].shape[0] == 1), None)
    if main and sequence is None:
        raise _several(main[0], tensors[main[0]])
    takes = frozenset(inspect.signature(getattr(module, "forward", module)).parameters)
    found = next((key for key in MASKS if key in tensors or key in takes), None)
    mask = None if found is None or sequence is None else Mask(found, sequence, *MASKS[found])
    ids = None
    if sequence is not None and not tensors[sequence].is_floating_point():
        ids = tensors[sequence].unique().cpu()
        ids = ids if len(ids) > 1 else None
    declared, why = causality(module, causal)
    fixed = {key: part for key, part in given.items() if not isinstance(part, torch.Tensor)}
    return Subject(
        model=module,
        name=name,
        given=tensors,
        fixed=fixed,
        sequence=sequence,
        mask=mask,
        ids=ids,
        causal=declared,
        why=why,
        takes=takes,
    )


class OfPositions:
    """A function of q, k, v as one of x (1, positions, width), which holds all three side by side, as a projection
    makes them.
    """

    def __init__(self, function, parts: Mapping[str, Any]):
        import torch

        if len({part.shape[2] for part in parts.values()}) > 1:
            raise refuse(
                "audit",
                "q, k and v of different lengths",
                given=str([tuple(part.shape) for part in parts.values()]),
                expected="(1, heads, positions, depth) with the same positions",
                fix="audit a call in which every token asks",
            )
        self.function, self.names, self.heads = function, list(parts), [part.shape[1] for part in parts.values()]
        self.joined = torch.cat([part.transpose(1, 2).flatten(2) for part in parts.values()], -1)
        self.widths = [part.shape[1] * part.shape[3] for part in parts.values()]

    def __call__(self, x):
        pieces = [
            part.unflatten(2, (heads, -1)).transpose(1, 2)
            for part, heads in zip(x.split(self.widths, -1), self.heads, strict=True)
        ]
        by_place = self.names == ["0", "1", "2"]
        out = self.function(*pieces) if by_place else self.function(**dict(zip(self.names, pieces, strict=True)))
        return out.transpose(1, 2).flatten(2)


def _several(name: str, part) -> Refused:
    return refuse(
        "audit",
        "several batch entries",
        given=f"{name} of shape {tuple(part.shape)}",
        expected="one entry: (1, positions, …)",
        fix="cut the inputs: x[:1]; others are drawn beside it",
    )


def _named(inputs) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    parts = inputs if isinstance(inputs, list | tuple) else [inputs]
    return {str(number): part for number, part in enumerate(parts)}


def _tokenized(tokenizer, text: str, takes: frozenset[str], ids) -> dict[str, Any]:
    """The text as the tokenizer cuts it; a decoder beside it gets tokens that are drawn."""
    encoded = tokenizer(text, return_tensors="pt")
    given = {key: part for key, part in encoded.items() if key in takes}
    if not given or not given["input_ids"].numel():
        raise refuse(
            "audit",
            "no text",
            given=f"{text[:20]!r}, in which the tokenizer finds no token",
            expected="a text",
            fix="give some words",
        )
    if "decoder_input_ids" in takes:
        given["decoder_input_ids"] = _tokens(ids, WRITTEN)
    return given


def _drawn(model, takes: frozenset[str], ids) -> Iterator[dict[str, Any]]:
    """What the model may take: tokens at random, then what is known of pictures and sound; one batch entry each."""
    from ..torch.hf import tiny_models

    if "input_ids" in takes:
        longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        count = min(DRAWN, longest // 2) if isinstance(longest, int) and longest > 3 else DRAWN
        text = {"input_ids": _tokens(ids, count)}
        if "decoder_input_ids" in takes:
            text["decoder_input_ids"] = _tokens(ids, min(WRITTEN, count))
        yield text
    with seeded(0):
        other = list(tiny_models.inputs(model))
    for each in other:
        alike = {part.shape[0] for part in each.values()} == {2}
        typed = {key: part.to(model.dtype) if part.is_floating_point() else part for key, part in each.items()}
        yield {key: part[:1] if alike else part for key, part in typed.items()}


def _tokens(ids, count: int):
    import torch

    return ids[torch.randint(len(ids), (1, count), generator=torch.Generator().manual_seed(0))]


def _ordinary(model, tokenizer):
    """The tokens that stand for words: all but those that the configuration or the tokenizer gives another meaning."""
    import torch

    config = model.config.get_text_config()
    size = getattr(config, "vocab_size", None) or 50
    size = min(size, getattr(_table(model), "num_embeddings", size))
    special = set(getattr(tokenizer, "all_special_ids", ())) | set(_marks(model.config.to_dict()))
    return torch.tensor(
        [number for number in range(min(3, size - 2), size) if number not in special] or list(range(size))
    )


def _table(model):
    """The table of the tokens' vectors, where the model has one."""
    try:
        return model.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # pictures and sound have none
        return None


def _marks(config: Mapping[str, Any]) -> list[int]:
    """Every number that a configuration calls a token."""
    found: list[int] = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            found += _marks(value)
        elif isinstance(key, str) and key.endswith(("token_id", "token_index", "token_ids")):
            found += [
                number for number in (value if isinstance(value, list | tuple) else [value]) if isinstance(number, int)
            ]
    return found


def _pad(model, tokenizer) -> int:
    for owner, name in ((tokenizer, "pad_token_id"), (model.config.get_text_config(), "pad_token_id")):
        found = getattr(owner, name, None)
        if isinstance(found, int) and found >= 0:
            return found
    return 0
