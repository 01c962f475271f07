"""Keyword arguments that a function does not have: the TypeError says what the argument is called here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ..errors import nearest
from ..public import Function

Class = TypeVar("Class", bound=type)

_MASK = "mask=; booleans are true where a row may attend, and floats that are added are score="
_CAUSAL = "mask=regard.causal()"
_WINDOW = "mask=regard.window(…)"
_CAP = "score=regard.softcap(…)"
_LENGTHS = "mask=regard.lengths(…), or documents(…) where sequences are packed"
_MOVE = "device= and dtype= of layer.to(…) convert it; omit it"
_HEADS = "grouped heads need no argument: k and v have fewer heads than q; omit it"

# Names of other libraries for an argument that is called otherwise here.
NAMES: Mapping[str, str] = {
    "masks": "mask",
    "attn_bias": "score",
    "mask_mod": "mask",
    "score_mod": "score",
    "scores": "score",
    "bias": "score",
    "sm_scale": "scale",
    "softmax_scale": "scale",
    "scaling": "scale",
    "sink": "sinks",
    "s_aux": "sinks",
    "learnable_sink": "sinks",
    "backend": "engine",
    "implementation": "engine",
    "query": "q",
    "queries": "q",
    "key": "k",
    "keys": "k",
    "value": "v",
    "values": "v",
    "embed_dim": "d_model",
    "hidden_size": "d_model",
    "num_heads": "heads",
    "nhead": "heads",
    "n_heads": "heads",
    "num_attention_heads": "heads",
    "num_kv_heads": "kv_heads",
    "num_key_value_heads": "kv_heads",
    "kdim": "memory_dim",
    "vdim": "value_dim",
    "past_key_values": "cache",
    "past_key_value": "cache",
    "position_ids": "positions",
    "encoder_hidden_states": "memory",
    "hidden_states": "x",
    "d_model": "embed_dim",
    "heads": "num_heads",
}
# Names of other libraries for what is written otherwise here: the argument here that does the same, and what to write.
ELSEWHERE: Mapping[str, tuple[str, str]] = {
    "attn_mask": ("mask", _MASK),
    "attention_mask": ("mask", _MASK),
    "block_mask": ("mask", "mask=block_mask.mask_mod, the function of a BlockMask of torch"),
    "is_causal": ("mask", _CAUSAL),
    "causal": ("mask", _CAUSAL),
    "window": ("mask", _WINDOW),
    "window_size": ("mask", _WINDOW),
    "sliding_window": ("mask", _WINDOW),
    "local_window_size": ("mask", _WINDOW),
    "key_padding_mask": ("mask", _LENGTHS),
    "key_value_seq_lengths": ("mask", _LENGTHS),
    "cu_seqlens": ("mask", "mask=regard.documents(lengths=…)"),
    "alibi_slopes": ("score", "score=regard.alibi(…)"),
    "softcap": ("score", _CAP),
    "logits_soft_cap": ("score", _CAP),
    "dropout_p": ("dropout", "dropout=, with seed="),
    "dropout_rate": ("dropout", "dropout=, with seed="),
    "generator": ("seed", "seed=, an integer"),
    "enable_gqa": ("q", _HEADS),
    "return_lse": ("q", "regard.attention_with_lse returns it; omit it"),
    "need_weights": ("q", "regard.attention_weights returns selected weights; omit it"),
    "batch_first": ("d_model", "rows are (batch, n, d_model) in every layer; omit it"),
    "device": ("d_model", _MOVE),
    "dtype": ("d_model", _MOVE),
}


def unknown_keyword(name: str, word: str, parameters: Iterable[str], later: Iterable[str] = ()) -> TypeError:
    """The TypeError of Python for an unknown keyword argument, and what the argument is called here.

    later: the arguments of each call of a layer, of which one may have been given to its constructor.

    >>> print(unknown_keyword("attention", "is_causal", ["q", "mask"]))
    attention() got an unexpected keyword argument 'is_causal': here it is mask=regard.causal()
    """
    known = list(parameters)
    here, text = ELSEWHERE.get(word) or (NAMES.get(word, ""), f"{NAMES.get(word, word)}=")
    close = nearest(word, known)
    hint = ""
    if here in known:
        hint = f": {text}" if text.endswith("omit it") else f": here it is {text}"
    elif here in (given := list(later)) or word in given:
        hint = f": give it to each call, {text}"
    elif close:
        hint = f": did you mean {close}=?"
    elif known:
        hint = f": it takes {', '.join(known)}"
    return TypeError(f"{name}() got an unexpected keyword argument {word!r}{hint}")


def reject_unknown(function: Callable[..., Any], unknown: Mapping[str, object]) -> None:
    """Raises TypeError for the first keyword argument that a function does not have."""
    if unknown:
        raise unknown_keyword(function.__qualname__, next(iter(unknown)), _parameters(function))


def without_unknown(function: Function) -> Function:
    """Leaves `**unknown`, which a function only rejects, out of the signature that it shows.

    For functions whose calls must cost nothing more: any other function is decorated with `known_keywords`.
    """
    signature = inspect.signature(function)
    shown = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
    function.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    return function


def known_keywords(function: Function) -> Function:
    """Decorates a function: the TypeError for an unknown keyword argument says what the argument is called here.

    >>> @known_keywords
    ... def attend(q, *, mask=None): ...
    >>> attend(1, maks=2)
    Traceback (most recent call last):
    TypeError: attend() got an unexpected keyword argument 'maks': did you mean mask=?
    """

    @functools.wraps(function)
    def call(*args, **kwargs):
        try:
            return function(*args, **kwargs)
        except TypeError as error:
            trace = error.__traceback__
            if trace is None or trace.tb_next is not None or "unexpected keyword" not in str(error):
                raise  # from inside the function, or about something else
            known = _parameters(function)
            unknown = next((each for each in kwargs if each not in known), None)
            if unknown is None:
                raise
            raise unknown_keyword(function.__qualname__, unknown, known) from None

    return call  # type: ignore[return-value] # it takes what `function` takes


def known_arguments(cls: Class) -> Class:
    """Decorates a layer: its constructor and its `forward` say what an unknown keyword argument is called here.

    They compare the names before the call, because a try block would divide the programs of torch.compile.

    >>> @known_arguments
    ... class Layer:
    ...     def __init__(self, heads): ...
    ...     def forward(self, x, *, mask=None): ...
    >>> Layer(heads=2).forward(1, is_causal=True)
    Traceback (most recent call last):
    TypeError: Layer.forward() got an unexpected keyword argument 'is_causal': here it is mask=regard.causal()
    """
    later = _parameters(cls.forward) if hasattr(cls, "forward") else []
    for name in ("__init__", "forward"):
        if name in vars(cls):
            setattr(cls, name, _checked(vars(cls)[name], later if name == "__init__" else []))
    return cls


def _checked(function: Function, later: Iterable[str]) -> Function:
    """A method that compares the names of its keyword arguments with those that it has."""
    known, name = _parameters(function), function.__name__
    if any(each.kind is each.VAR_KEYWORD for each in inspect.signature(function).parameters.values()):
        return function  # it hands them on
    names = frozenset(known)

    @functools.wraps(function)
    def method(self, *args, **kwargs):
        if not names.issuperset(kwargs):
            unknown = next(word for word in kwargs if word not in names)
            raise unknown_keyword(f"{type(self).__name__}.{name}", unknown, known, later)
        return function(self, *args, **kwargs)

    return method  # type: ignore[return-value] # it takes what `function` takes


def _parameters(function: Callable[..., Any]) -> list[str]:
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        name for name, each in inspect.signature(function).parameters.items() if each.kind in plain and name != "self"
    ]
