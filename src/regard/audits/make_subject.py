"""Builds the Subject of an audit: from a transformers model and a text, or from any torch module and its inputs. Reads
what a forward declares: which argument is a padding mask and of what, and whether the model is causal. Refuses what
cannot be called and changed, and outputs that cannot be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ..common.errors import Refused, first_line, refuse
from ..common.text.characters import clipped
from .subject import (
    BY_CALLER,
    PaddingMask,
    Raised,
    Subject,
    flags,
    floats,
    modules_of,
    named,
    parameters_of,
    positions_first,
    seeded,
)

# Lengths of random inputs, for an encoder or a decoder-only model, and for the decoder of an encoder–decoder model.
# Both are prime, so that no other axis has the same length.
TOKENS, DECODER_TOKENS = 23, 19

# The inputs of transformers models whose axis 1 is the positions of the outputs, the first that is given.
SEQUENCES = ("decoder_input_ids", "decoder_inputs_embeds", "input_ids", "inputs_embeds")

KNOWN = 1000  # tokens from which replacements are drawn, where the input has only one


def from_name(name: str | Path | None, text: str | None = None, causal: bool | None = None) -> Subject:
    """The model in a folder or on the hub, with its saved head, on SDPA if the architecture supports it."""
    from ..torch.hf.load_model import opened

    loaded = opened(name, writes=None, reads=text is not None, bare=text is None)
    try:
        loaded.model.set_attn_implementation("sdpa")
    except ValueError:  # the architecture does not support it
        loaded.model.set_attn_implementation("eager")
    return from_transformers(loaded.model, loaded.tokenizer, text, None, causal, loaded.name)


def from_transformers(
    model, tokenizer=None, text: str | None = None, inputs=None, causal: bool | None = None, name: str = ""
) -> Subject:
    """A transformers model with a text, with the inputs of its forward, or with random tokens.

    Refused: a text without a tokenizer, and a model that runs with none of the inputs that are known for its type.
    """
    parameters = frozenset(parameters_of(model))
    fixed = {"use_cache": False} if "use_cache" in parameters else {}
    ids = _ordinary_tokens(model, tokenizer)
    if text is not None and inputs is not None:
        raise refuse(
            "audit",
            "both a text and inputs",
            f"{clipped(text, 20)!r} and {type(inputs).__name__}",
            "one of them",
            "omit text or inputs=",
        )
    if text is not None and tokenizer is None:
        raise refuse(
            "audit",
            "a text without a tokenizer",
            f"{clipped(text, 20)!r} for {type(model).__name__}",
            "the tokenizer of the model",
            "pass tokenizer=, or inputs= with the arguments of the model's forward",
        )
    candidates: Iterable[dict[str, Any]] = _random_inputs(model, parameters, ids)
    if inputs is not None or text is not None:
        given = named(inputs, list(parameters_of(model))) if text is None else _tokenized(tokenizer, text, parameters)
        candidates = _with_decoder(model, given, parameters, ids)
    errors: list[Exception] = []
    for candidate in candidates:
        moved = {key: part.to(model.device) for key, part in candidate.items() if isinstance(part, torch.Tensor)}
        others = {key: part for key, part in candidate.items() if key not in moved}
        sequence = next((key for key in SEQUENCES if key in moved), None)
        if inputs is not None and sequence is not None and moved[sequence].shape[0] != 1:
            raise _several_entries(sequence, moved[sequence])
        mask, further = of_transformers(moved, parameters, sequence)
        declared, source = causality(model, causal)
        if _lacks_decoder_input(moved, parameters):  # the decoder reads a copy of the input, and so its padding
            mask = None
            if causal is None:
                declared, source = None, "the model makes the input of its decoder itself"
        else:
            moved.pop("labels", None)  # for the loss, which is not compared; their length would be that of one run only
        subject = Subject(
            model=model,
            name=name or type(model).__name__,
            inputs=moved,
            fixed=fixed | others,
            sequence=sequence,
            mask=mask,
            further_masks=further,
            ids=ids,
            pad=_padding_token(model, tokenizer),
            causal=declared,
            causal_source=source,
            parameters=parameters,
            is_transformers=True,
        )
        try:
            subject.run(subject.inputs)
        except Exception as error:  # the code of the model may reject an input with any error
            errors.append(error)
        else:
            return subject
    guessed = inputs is None and text is None
    cause = (errors[0] if guessed else errors[-1]) if errors else None  # the last are the inputs as they were given
    raise refuse(
        "audit",
        "the model does not run",
        f"{type(model).__name__}: {first_line(cause) if cause else 'no inputs are known for its type'}",
        "inputs that its forward accepts",
        "pass inputs=, tensors by name, batch first",
    ) from cause


def from_module(module, inputs, causal: bool | None = None, name: str = "") -> Subject:
    """Any torch module (or function of tensors) with its inputs: one tensor, several in order, or tensors by name,
    batch first.

    The sequence is the first tensor of shape (1, positions, …); a mask or a complex tensor only without any other. A
    function of q, k and v (1, heads, positions, depth) is wrapped so that its sequence is their positions.

    Refused: no tensor, no input with a single batch entry, and q and k of different lengths.
    """
    names = [name for name, each in parameters_of(module).items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    given = named(inputs, names)
    name = name or getattr(module, "__name__", type(module).__name__)
    tensors = {key: part for key, part in given.items() if isinstance(part, torch.Tensor)}
    fixed = {key: part for key, part in given.items() if key not in tensors}
    if not tensors:
        raise refuse(
            "audit",
            "no inputs",
            f"{type(inputs).__name__} for {name}",
            "tensors of torch, batch first",
            "pass inputs=x, inputs=(x, y) or inputs={'x': x}; torch.from_numpy makes one of an array",
        )
    if not isinstance(module, torch.nn.Module) and [part.ndim for part in tensors.values()] == [4, 4, 4]:
        module = JoinedHeads(module, tensors)
        names, tensors = ["x"], {"x": module.joined}
    masks = {key for key, part in tensors.items() if is_mask_or_bias(key) or _is_all_true(part)}
    main = [key for key, part in tensors.items() if key not in PADDING_MASKS and part.ndim > 1]
    main = [key for key in main if key not in masks and not tensors[key].is_complex()] or main
    single = [key for key in main if tensors[key].shape[0] == 1]
    ordered = tuple(key for key in given if key.isdigit() or not isinstance(inputs, Mapping))
    sequence = _sequence(Subject(model=module, name=name, inputs=tensors, fixed=fixed, ordered=ordered), single)
    if main and sequence is None:
        raise _several_entries(main[0], tensors[main[0]], positions_first(module))
    length = tensors[sequence].shape[1] if sequence else 0
    made = {key: of_positions(key, tensors[key], length) for key in masks}
    forms = {key: each[1] for key, each in made.items() if each}
    tensors |= {key: each[0] for key, each in made.items() if each}
    mask, further = of_module(tensors, names, sequence)
    pairs = masks - {each.name for each in (mask, *further) if each}
    replaced = [tensors[name] for name in (sequence, mask and mask.of) if name is not None]
    ids = next((found for part in replaced if (found := _other_tokens(part, module)) is not None), None)
    declared, causal_source = causality(module, causal)
    subject = Subject(
        model=module,
        name=name,
        inputs=tensors,
        fixed=fixed,
        ordered=ordered,
        sequence=sequence,
        mask=mask,
        further_masks=further,
        of_pairs=frozenset(key for key in pairs if tensors[key].ndim > 1),
        forms=forms,
        ids=ids,
        causal=declared,
        causal_source=causal_source,
        parameters=frozenset(names),
    )
    owned = [_with_owner(subject, each) for each in subject.masks]
    return replace(subject, mask=owned[0], further_masks=tuple(owned[1:])) if owned else subject


def _sequence(subject: Subject, single: Sequence[str]) -> str | None:
    """The input whose axis 1 is the positions: of several, that of a decoder by its name, of which the outputs have as
    many rows; the first if none has.
    """
    every = sorted(single, key=lambda key: not key.lower().startswith(("tgt", "trg", "target", "dec")))
    if len({subject.inputs[key].shape[1] for key in every}) > 1:
        with suppress(Raised):
            rows = {part.shape[1] for _, part in floats(subject.call(subject.inputs)) if part.ndim > 1}
            every.sort(key=lambda key: subject.inputs[key].shape[1] not in rows)
    return every[0] if every else None


def _with_owner(subject: Subject, mask: PaddingMask) -> PaddingMask:
    """The mask with the input that it is about: where several have its length, the one that can be made shorter
    together with it alone.
    """
    names = {each.name for each in subject.masks}
    shape = subject.inputs[mask.of].shape[:2]
    alike = [key for key, part in subject.inputs.items() if key not in names and part.shape[:2] == shape]
    for of in sorted(alike, key=lambda key: key != mask.of) if mask.name in subject.inputs and alike[1:] else ():
        both = {of, mask.name}
        with suppress(Raised):
            subject.call({name: part[:, :-1] if name in both else part for name, part in subject.inputs.items()})
            return replace(mask, of=of, along=frozenset(both))
    return mask


class JoinedHeads:
    """A function of q, k and v as a function of x (1, positions, width), the concatenation of all their heads, like the
    output of a fused projection.
    """

    def __init__(self, function, parts: Mapping[str, Any]):
        if len({part.shape[2] for part in parts.values()}) > 1:
            raise refuse(
                "audit",
                "q, k and v of different lengths",
                str([tuple(part.shape) for part in parts.values()]),
                "(1, heads, positions, depth) with the same positions",
                "audit a self-attention call with one query for every key",
            )
        self.function = function
        self.names, self.heads = list(parts), [part.shape[1] for part in parts.values()]
        self.joined = torch.cat([part.transpose(1, 2).flatten(2) for part in parts.values()], -1)
        self.widths = [part.shape[1] * part.shape[3] for part in parts.values()]

    def __call__(self, x):
        pieces = [
            part.unflatten(2, (heads, -1)).transpose(1, 2)
            for part, heads in zip(x.split(self.widths, -1), self.heads, strict=True)
        ]
        return self.attend(*pieces).transpose(1, 2).flatten(2)

    def attend(self, *parts):
        """The function of q, k and v, in the order in which they were given."""
        positional = self.names == ["0", "1", "2"]
        return self.function(*parts) if positional else self.function(**dict(zip(self.names, parts, strict=True)))


def _several_entries(name: str, part, transposed: bool = False) -> Refused:
    fix = "pass the first entry, x[:1]; the audit adds random entries itself"
    if transposed and part.shape[1] == 1:
        fix += (
            ". If axis 0 is the positions (batch_first=False), pass lambda x: model(x.transpose(0, 1)).transpose(0, 1) "
            "and inputs of shape (1, positions, …)"
        )
    return refuse(
        "audit", "several batch entries", f"{name} of shape {tuple(part.shape)}", "one entry: (1, positions, …)", fix
    )


def _tokenized(tokenizer, text: str, parameters: frozenset[str]) -> dict[str, Any]:
    """The tokens of the text."""
    encoded = tokenizer(text, return_tensors="pt")
    inputs = {key: part for key, part in encoded.items() if key in parameters}
    if not inputs or not inputs["input_ids"].numel():
        raise refuse(
            "audit",
            "no text",
            f"{clipped(text, 20)!r}, for which the tokenizer returns no token",
            "a text of at least one token",
            "pass a longer text",
        )
    return inputs


def _with_decoder(model, inputs: dict[str, Any], parameters: frozenset[str], ids) -> Iterator[dict[str, Any]]:
    """The inputs, first with random tokens for a decoder that is given none; some models make them of the others."""
    if _lacks_decoder_input(inputs, parameters):
        yield {**inputs, "decoder_input_ids": _random_tokens(ids, DECODER_TOKENS, *_channels(model))}
    yield inputs


def _lacks_decoder_input(inputs: Mapping[str, Any], parameters: frozenset[str]) -> bool:
    """Whether an encoder–decoder model is given no input of its decoder."""
    return "decoder_input_ids" in parameters and not any(name.startswith("decoder_input") for name in inputs)


def _random_inputs(model, parameters: frozenset[str], ids) -> Iterator[dict[str, Any]]:
    """Inputs that the model may accept: random tokens, then images and audio; one batch entry each."""
    from ..torch.hf import tiny_models

    if "input_ids" in parameters:
        longest = getattr(model.config.get_text_config(), "max_position_embeddings", None)
        count = min(TOKENS, longest // 2) if isinstance(longest, int) and longest > 3 else TOKENS
        text = {"input_ids": _random_tokens(ids, count)}
        if "decoder_input_ids" in parameters:
            text["decoder_input_ids"] = _random_tokens(ids, min(DECODER_TOKENS, count), *_channels(model))
        yield text
    with seeded(0):
        other = list(tiny_models.inputs(model))
    for each in other:
        batched = {part.shape[0] for part in each.values()} == {2}
        typed = {key: part.to(model.dtype) if part.is_floating_point() else part for key, part in each.items()}
        yield {key: part[:1] if batched else part for key, part in typed.items()}


def _random_tokens(ids, *shape: int):
    return ids[torch.randint(len(ids), (1, *shape), generator=torch.Generator().manual_seed(0))]


def _channels(model) -> tuple[int, ...]:
    """(channels,) of a decoder whose positions hold one token per channel of the sound, as Dia's; otherwise ()."""
    channels = getattr(getattr(model.config, "decoder_config", None), "num_channels", None)
    return (channels,) if isinstance(channels, int) else ()


def _ordinary_tokens(model, tokenizer):
    """The tokens without the special tokens of the configuration and of the tokenizer."""
    config = model.config.get_text_config()
    size = getattr(config, "vocab_size", None) or 50
    size = min(size, getattr(_embeddings(model), "num_embeddings", size))
    special = set(getattr(tokenizer, "all_special_ids", ())) | set(_special_tokens(model.config.to_dict()))
    return torch.tensor(
        [number for number in range(min(3, size - 2), size) if number not in special] or list(range(size))
    )


def _other_tokens(tokens, module):
    """The tokens that replacements are drawn from: those of the input; where they are all equal, smaller ones, or those
    of the smallest table of embeddings. None for floats, and where no others are known.
    """
    if tokens.is_floating_point() or tokens.is_complex():
        return None
    known = torch.arange(2) if tokens.dtype is torch.bool else tokens.long().unique().cpu()
    if len(known) == 1:
        sizes = [part.num_embeddings for part in modules_of(module) if isinstance(part, torch.nn.Embedding)]
        largest = int(known) or min(sizes, default=1) - 1
        first = max(largest - KNOWN, 1 if largest > 1 else 0)  # 0 is often padding
        known = torch.arange(first, max(largest + 1, first))
    return known if len(known) > 1 else None


def _embeddings(model):
    """The token embeddings, where the model has them."""
    try:
        return model.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # models of images and audio have none
        return None


def _special_tokens(config: Mapping[str, Any]) -> list[int]:
    """Every special token of a configuration, such as eos_token_id."""
    tokens: list[int] = []
    for key, value in config.items():
        if isinstance(value, Mapping):
            tokens += _special_tokens(value)
        elif isinstance(key, str) and key.endswith(("token_id", "token_index", "token_ids")):
            tokens += [
                number for number in (value if isinstance(value, list | tuple) else [value]) if isinstance(number, int)
            ]
    return tokens


def _padding_token(model, tokenizer) -> int:
    for owner in (tokenizer, model.config.get_text_config()):
        token = getattr(owner, "pad_token_id", None)
        if isinstance(token, int) and token >= 0:
            return token
    return 0


# Padding masks whose values are documented, by name: (value of a real token, value of padding).
PADDING_MASKS: dict[str, tuple[float, float]] = {
    "attention_mask": (1, 0),
    "key_padding_mask": (False, True),
    "src_key_padding_mask": (False, True),
    "memory_key_padding_mask": (False, True),
    "tgt_key_padding_mask": (False, True),
}

WORDS = ("mask", "pad", "valid", "len", "keep", "visible")  # in the names of other padding masks

# What the padding masks of torch.nn are about, and the arguments that have the same positions.
OWNERS = {
    "key_padding_mask": ("key", "value"),
    "src_key_padding_mask": ("src",),
    "memory_key_padding_mask": ("memory", "src"),
    "tgt_key_padding_mask": ("tgt",),
}


def of_transformers(inputs: Mapping[str, Any], parameters: frozenset[str], sequence: str | None):
    """(the padding mask of a transformers model or None, further ones) for these inputs of its forward."""
    mask = None
    source = next((key for key in ("input_ids", "inputs_embeds") if key in inputs), None)
    if source and "attention_mask" in parameters and _is_padding(inputs.get("attention_mask"), inputs[source]):
        mask = PaddingMask("attention_mask", source)
    own = inputs.get("decoder_attention_mask")
    if own is not None and sequence and sequence.startswith("decoder_") and _is_padding(own, inputs[sequence]):
        return mask, (PaddingMask("decoder_attention_mask", sequence),)
    return mask, ()


def of_module(tensors: Mapping[str, Any], arguments: Sequence[str], sequence: str | None):
    """(the padding mask of a torch module or None, further ones) for these inputs."""
    if sequence is None:
        return None, ()
    known = [name for name in dict.fromkeys([*PADDING_MASKS, *tensors]) if name in tensors]
    known = [name for name in known if name != sequence and (is_mask(name) or _is_all_true(tensors[name]))]
    known = known or [name for name in PADDING_MASKS if name in arguments]
    masks = [mask for name in known if (mask := _mask(name, tensors, arguments, sequence)) is not None]
    if not masks:
        return None, ()
    first = masks[0]
    return first, tuple(mask for mask in masks[1:] if mask.name in tensors and mask.name not in first.others)


def is_mask(name: str) -> bool:
    """Whether an argument of this name may be a padding mask."""
    return any(word in name for word in WORDS)


def _is_all_true(given) -> bool:
    """Whether an argument is a padding mask by its numbers: true for each position."""
    import torch

    return given.dtype is torch.bool and given.ndim == 2 and bool(given.all())


def is_mask_or_bias(name: str) -> bool:
    """Whether an argument of this name is added to scores or hides some, rather than being attended to."""
    return is_mask(name) or "bias" in name


def of_positions(name: str, given, length: int) -> tuple[Any, Callable[[Any], Any]] | None:
    """(a padding mask with one entry for each position, what makes of it the argument that the model takes), for a mask
    (1, 1, …, positions) and for the number of real tokens (1,); None for other arguments.
    """
    sizes = given.shape[1:-1]
    if given.ndim > 2 and given.numel() == given.shape[-1]:
        return given.reshape(1, -1), lambda mask: mask.reshape(len(mask), *sizes, -1)
    if "len" not in name or given.shape != (1,) or given.is_floating_point() or not 0 < given <= length:
        return None
    return given.new_ones(1, length).cumsum(1) <= given, lambda mask: mask.sum(1).to(given)


def _mask(name: str, tensors: Mapping[str, Any], arguments: Sequence[str], sequence: str) -> PaddingMask | None:
    owners = [owner for owner in OWNERS.get(name, ()) if owner in tensors]
    given = tensors.get(name)
    of = owners[0] if owners else _owner(name, tensors, sequence)
    if of is None or (given is not None and not _is_padding(given, tensors[of])):
        return None
    others = []
    if name == "src_key_padding_mask" and "memory_key_padding_mask" in arguments:
        others = ["memory_key_padding_mask"]
    real, padding = PADDING_MASKS.get(name, (1, 0))
    if given is not None and given.is_floating_point() and bool((given <= 0).all()):  # it is added to the scores
        import torch

        real, padding = 0.0, float(given.min()) or torch.finfo(given.dtype).min
    elif name not in PADDING_MASKS and given is not None and given.double().mean() < 0.5:  # most tokens are real
        real, padding = 0, 1
    return PaddingMask(name, of, real, padding, tuple(others), frozenset([*owners, name, *others]) if owners else None)


def _owner(name: str, tensors: Mapping[str, Any], sequence: str) -> str | None:
    """The input that a padding mask is about, if no argument has the name of its owner: the one of its length. None
    where that is unknown: a mask that is not given, in a module with inputs of several lengths, or with an image, whose
    axis 1 holds no positions.
    """
    axes = range(3, max(4, tensors[sequence].ndim + 1))  # more than these have tables, such as rotary angles
    alike = [key for key in tensors if key.split("_")[0] == name.split("_")[0]]  # src of src_mask
    shown = (key for key, part in tensors.items() if part.ndim in axes or key == sequence)
    content = [
        key for key in dict.fromkeys([*alike, *shown]) if key == sequence or not (key == name or is_mask_or_bias(key))
    ]
    given, of_keys = tensors.get(name), name in OWNERS
    if given is None:
        lengths = {tensors[key].shape[1] for key in content}
        unknown = len(content) > 1 if of_keys else len(lengths) > 1 or tensors[sequence].ndim > 3
        return None if unknown else sequence
    if of_keys:
        content.sort(key=lambda key: key == sequence)  # keys come from the other input
    return next((key for key in content if _is_padding(given, tensors[key])), None)


def _is_padding(given, main) -> bool:
    """Whether an argument, if given, has one entry for each position."""
    return given is None or given.shape == main.shape[:2]


# Model types that have a generation head but attend in both directions within the prompt, each with the reason.
BIDIRECTIONAL = {
    "xlnet": "it attends in both directions unless perm_mask is given",
    "xlm": "its configuration (causal is False)",
    "flaubert": "its configuration (causal is False)",
    "cpmant": "it attends in both directions within the prompt",
    "paligemma": "it attends in both directions within the prompt",
}


def causality(model: Any, given: bool | None = None) -> tuple[bool | None, str]:
    """(whether the model is causal, or None where that is unknown; what declares it)."""
    if given is not None:
        return given, BY_CALLER
    config = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        if "decoder_input_ids" in parameters_of(model):
            return True, "its type: the decoder of an encoder–decoder model is autoregressive"
        return None, "its type: an encoder–decoder model with a non-autoregressive decoder"
    if getattr(config, "is_decoder", False) is True:
        return True, "its configuration (is_decoder)"
    model_type = getattr(config, "model_type", "")
    if model_type in BIDIRECTIONAL:
        return (
            (True, "its configuration (causal)")
            if getattr(config, "causal", False) is True
            else (False, BIDIRECTIONAL[model_type])
        )
    if bool(getattr(model, "can_generate", bool)()):
        return True, f"its class, which can generate ({type(model).__name__})"
    known = flags(model, "is_causal")
    if known == {True}:
        return True, "its attention layers (is_causal)"
    if known == {False}:
        return False, "its attention layers (is_causal is False)"
    return None, "neither the model nor the caller declares it"


COMPARED = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def refuse_model(what: Any, inputs: Any) -> None:
    """Refuses what is not a model, and models and inputs without numbers or with numbers that cannot be read."""
    kinds = (torch.jit.ScriptModule, torch.jit.ScriptFunction)
    inside = modules_of(what) if isinstance(what, torch.nn.Module) else ()
    # What is traced inside a module of Python takes the hooks that record calls; what is scripted does not.
    scripted = (part for part in inside if isinstance(part, torch.jit.RecursiveScriptModule))
    part = what if isinstance(what, kinds) else next(scripted, None)
    if part is not None:
        raise refuse(
            "audit",
            "TorchScript cannot be audited",
            type(part).__name__,
            "a module or function of Python, whose calls can be recorded and whose modules can be changed",
            "audit the module before torch.jit.script or torch.jit.trace",
        )
    named = what is None or isinstance(what, str | Path)
    if not named and (isinstance(what, type) or not callable(what)):
        raise refuse(
            "audit",
            "this is not a model",
            f"the class {what.__name__}" if isinstance(what, type) else f"{type(what).__name__} {what!r:.40}",
            "a model of transformers or the name of one, a torch module, a function of tensors, or a recorded run",
            f"pass an instance, {what.__name__}(…)" if isinstance(what, type) else "pass the model itself",
        )
    weights = [*what.parameters(), *what.buffers()] if isinstance(what, torch.nn.Module) else []
    for name, part in (*_tensors(inputs), *(("a weight", weight) for weight in weights)):
        if part.is_meta:
            raise refuse(
                "audit",
                "tensors on the meta device have no values",
                f"{name} of shape {tuple(part.shape)} on meta",
                "weights and inputs with values",
                "load the weights, model.to_empty(device='cpu') and load_state_dict, and pass inputs on that device",
            )
        if name != "a weight" and (part.layout is not torch.strided or part.is_nested or 0 in part.shape):
            raise refuse(
                "audit",
                "an input is sparse, nested or empty",
                f"{name} of layout {part.layout} and shape {'nested' if part.is_nested else tuple(part.shape)}",
                "a dense tensor, which can be padded and put into a batch, with at least one position",
                "pass to_dense(), or to_padded_tensor(0) with a padding mask, of ordinary length, about 20 positions",
            )


def refuse_outputs(subject: Subject) -> None:
    """Refuses a model that does not run, and one whose outputs cannot be compared."""
    try:
        found = list(floats(subject.call(subject.inputs)))
    except Raised as error:
        first = positions_first(subject.model)
        raise refuse(
            "audit",
            "the model does not run",
            f"{subject.name}: {error}",
            "inputs that its forward accepts",
            "pass inputs=, tensors by name, batch first"
            + ("; its layers of torch take the positions first: create them with batch_first=True" * first),
        ) from error
    for name, part in found:
        if part.layout is not torch.strided or part.is_nested or part.is_meta or part.dtype not in COMPARED:
            raise refuse(
                "audit",
                "an output cannot be compared",
                f"{name}: {part.dtype} of layout {part.layout}{', nested' * part.is_nested} on {part.device}",
                f"dense tensors of {', '.join(str(each).removeprefix('torch.') for each in COMPARED)}",
                "wrap the model in a function that returns to_dense(), to_padded_tensor(0) or float()",
            )
    if not found:
        raise refuse(
            "audit",
            "no output can be compared",
            f"{subject.name} returns no floating-point tensor with numbers in it",
            "at least one, such as hidden states or logits",
            "wrap the model in a function that returns them; torch.view_as_real for complex numbers",
        )


def _tensors(inputs: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among inputs, each with its name in words."""
    for name, part in named(inputs).items():
        if isinstance(part, torch.Tensor):
            yield "the input" if part is inputs else f"the input {name}", part
