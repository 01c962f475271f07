"""The checks cache and position-offset: decoding with a key/value cache matches one forward pass, with the right
positions.
"""

from __future__ import annotations

from typing import Any

from ...common.text.units import counted
from ..difference import Difference, difference, passed
from ..finding import Finding, NotApplicable, Passed, found
from ..subject import Outputs, Raised, Subject, floats, raising, seeded

STEPS = 8
PADDING = 3
SHIFTS = (1, -1, 2, -2)


def cache(subject: Subject) -> Finding | Passed:
    """The last tokens of the sequence, decoded one by one with a cache of the first: every output matches one forward
    pass.
    """
    if reason := _unsupported(subject):
        raise NotApplicable(reason)
    subject = subject.without_padding
    expected = subject.rows(subject.outputs)
    start = max(1, subject.length - STEPS)
    between = difference(subject, *_steps(subject, expected, start, None))
    if not between.significant:
        steps = f"{subject.length - start} tokens, one at a time, with a cache of {start}"
        return passed("cache", steps, [between], _untested(subject))
    if "position_ids" in subject.parameters:
        for shift in (0, *SHIFTS):
            if not difference(subject, *_steps(subject, expected, start, shift)).significant:
                return _offset(between, start, -shift, "when decoding with a cache")
    first = start + (between.row or 0)
    return found(
        "cache",
        "fault",
        f"token {first}, the first of {len(between.rows)} that differ",
        f"between decoding with a cache of {counted(start, 'token')} and one forward pass, {between}",
        "the cache does not contain the keys of one forward pass: only one of the two applies a sliding window, "
        "keys are appended twice, in the wrong order or before their rotary positions, or the mask is not sliced to "
        "the length of the cache",
        "compare the keys with those of one forward pass, layer by layer; until then pass use_cache=False",
        row=first,
        numbers=between.numbers(start=start),
    )


def position_offset(subject: Subject) -> Finding | Passed:
    """`generate`, on the prompt alone and after left padding: the logits of every step match one forward pass over the
    text without padding.
    """
    if reason := _unsupported(subject) or _cannot_generate(subject):
        raise NotApplicable(reason)
    subject = subject.without_padding
    n, measured = subject.length, {}
    for left, way in ((0, "without padding"), (PADDING, f"after {PADDING} positions of left padding")):
        text, actual = _generated(subject, left)
        between = measured[way] = difference(subject, actual, _one_pass(subject, text, 0))
        if not between.significant:
            continue
        for shift in SHIFTS if "position_ids" in subject.parameters else ():
            if not difference(subject, actual, _one_pass(subject, text, shift)).significant:
                return _offset(between, n, shift, f"when generating {way}")
        takes_positions = "position_ids" in subject.parameters
        return found(
            "position-offset",
            "fault",
            f"generation {way}, from step {between.rows[0]} on",
            f"between {STEPS} tokens generated {way} and one forward pass over the same text, {between}",
            "generate passes other positions, another mask or other inputs than one forward pass computes for itself"
            if not left
            else "positions count the padding, or the padding mask is lost during decoding"
            if takes_positions
            else "forward takes no position_ids, so positions count the padding",
            "compute position_ids from attention_mask (its cumulative sum − 1) in forward itself, and pass "
            "attention_mask in every step",
            row=n + between.rows[0],
            numbers=between.numbers(padding=left),
        )
    generated = f"{STEPS} tokens generated {' and '.join(measured)}, against one forward pass"
    return passed("position-offset", generated, measured.values())


def _generated(subject: Subject, left: int) -> tuple[Any, Outputs]:
    """(prompt and generated tokens, without padding; the logits of every step)."""
    import torch

    given = subject.padded(left) if left else subject.with_masks()
    prompt = {name: given[name] for name in (subject.sequence or "", subject.padding.name)}
    steps: list[None] = []
    counting = subject.model.register_forward_pre_hook(lambda *_: steps.append(None))
    try:
        with raising(), torch.no_grad(), seeded(0):
            generated = subject.model.generate(
                **prompt,
                max_new_tokens=STEPS,
                min_new_tokens=STEPS,
                do_sample=False,
                num_beams=1,
                use_cache=True,
                output_logits=True,
                return_dict_in_generate=True,
                pad_token_id=subject.pad,
            )
    except Raised as error:
        arguments = isinstance(error.__cause__, (TypeError, ValueError, NotImplementedError))
        if arguments and not steps and not left:  # what it does not support is this call, not decoding
            raise NotApplicable(
                f"generate refused the arguments of this check before its first step: {error}"
            ) from error
        raise
    finally:
        counting.remove()
    return generated.sequences[:, left:], {"logits": torch.stack(generated.logits, 1)}


def _one_pass(subject: Subject, text, shift: int) -> Outputs:
    """The logits of one forward pass for each generated token, whose positions are increased by `shift`."""
    import torch

    inputs: dict[str, Any] = {subject.sequence or "": text}
    if shift:
        places = torch.arange(text.shape[1], device=text.device)
        inputs["position_ids"] = torch.where(places < subject.length, places, places + shift)[None]
    return {"logits": subject.run(inputs)["logits"][:, subject.length - 1 : -1].float()}


def _offset(between: Difference, start: int, shift: int, when: str) -> Finding:
    """The finding that positions are off by `shift`; 0: only the positions that the model computes itself are wrong."""
    if shift:
        words = f"positions that are {abs(shift)} too {'large' if shift > 0 else 'small'} explain it"
        cause = (
            "the position of a new token is off: the length of the cache is read at the wrong time (before instead of "
            "after its update, or vice versa), or positions are counted from 1"
        )
    else:
        words = "if position_ids are passed, the outputs agree"
        cause = "without position_ids, forward counts positions from 0 again and ignores the length of the cache"
    return found(
        "position-offset",
        "fault" if shift else "warning",
        f"from position {start} on, {when}",
        f"against one forward pass, {between}; {words}",
        cause,
        "the first new token has the position past_key_values.get_seq_length(), read before the update"
        if shift
        else (
            "pass position_ids in every step, as generate does; in forward, count from past_key_values.get_seq_length()"
        ),
        row=start,
        numbers=between.numbers(offset=shift),
    )


def _steps(subject: Subject, expected: Outputs, start: int, shift: int | None) -> tuple[Outputs, Outputs]:
    """(outputs of the tokens from `start` on, one at a time with a cache; the same outputs of one forward pass) of a
    subject without padding masks of its sequence, which would be shorter than the cache.

    shift: position_ids are passed, with this number added. None: they are not passed.
    """
    import torch

    tokens, along = subject.inputs[subject.sequence or ""], subject.of_sequence

    def between(first: int, end: int) -> dict[str, Any]:
        """The inputs for these positions of the sequence."""
        return {name: part[:, first:end] if name in along else part for name, part in subject.inputs.items()}

    result = _with_cache(subject.call({**between(0, start), "use_cache": True}))
    parts = []
    for at in range(start, tokens.shape[1]):
        step = {**between(at, at + 1), "past_key_values": result.past_key_values, "use_cache": True}
        if shift is not None:
            step["position_ids"] = torch.tensor([[at + shift]], device=tokens.device)
        result = _with_cache(subject.call(step))
        parts.append(dict(floats(result)))
    actual = {
        name: torch.cat([part[name] for part in parts], 1) for name in expected if all(name in part for part in parts)
    }
    return actual, {name: part[:, start:] for name, part in expected.items()}


def _with_cache(result: Any) -> Any:
    """What a model returned, which must contain a cache."""
    if getattr(result, "past_key_values", None) is None:
        raise NotApplicable("the model returns no past_key_values")
    return result


def _untested(subject: Subject) -> str:
    """A remark for a sliding window that is longer than the sequence."""
    window = getattr(subject.model.config.get_text_config(), "sliding_window", None)
    wide = isinstance(window, int) and window >= subject.length
    return f"; the text does not exceed the sliding window of {window} keys: use a longer text" if wide else ""


def _unsupported(subject: Subject) -> str | None:
    """Why the model cannot decode with a cache; None if it can."""
    if not subject.is_transformers or not {"use_cache", "past_key_values"} <= subject.parameters:
        return "the model does not take use_cache and past_key_values"
    if not subject.causal:
        return f"not declared causal: {subject.causal_source}"
    if any("reference" in kind for kind in getattr(subject.model.config.get_text_config(), "layer_types", None) or ()):
        return "its window begins where the prompt ends, so one forward pass over all tokens computes something else"
    if subject.sequence is None or subject.without_padding.length < 4:
        return "no input is a sequence of at least four positions"
    if not subject.rows(subject.outputs):
        return (
            f"no output has a row for each position of {subject.sequence}, so no step of one token can be cut from it"
        )
    if needed := subject.required & {mask.name for mask in subject.masks}:
        return f"forward requires {', '.join(sorted(needed))}, whose length would have to follow the cache"
    own = subject.sequence.removesuffix("input_ids").removesuffix("inputs_embeds") + "attention_mask"
    if own in subject.inputs and own not in {mask.name for mask in subject.masks}:
        return f"{own} is given for each pair of positions, so it fits one length only"
    return None


def _cannot_generate(subject: Subject) -> str | None:
    """Why the model cannot generate after left padding; None if it can."""
    if not subject.model.can_generate():
        return "the model cannot generate"
    if subject.mask is None or subject.mask.of != subject.sequence:
        return "the model takes no padding mask for the sequence that it generates"
    if subject.inputs[subject.sequence].is_floating_point():
        return f"{subject.sequence} are vectors, which generate does not continue as a text: pass token ids"
    longest = getattr(subject.model.config.get_text_config(), "max_position_embeddings", None)
    needed = subject.without_padding.length + PADDING + STEPS
    if isinstance(longest, int) and longest < needed:
        return f"it has {longest} positions, and {needed} are needed: pass a shorter text"
    return None
