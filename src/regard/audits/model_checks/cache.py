"""Whether decoding over a cache gives what one pass gives, and whether its positions count on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..difference import Gap, Incomparable, gap
from ..finding import Finding, Passed, Result, Skipped
from ..subject import Outputs, Subject, floats, running, seeded

__all__ = ["cache", "position_offset"]

STEPS = 8
PADDING = 3
SHIFTS = (1, -1, 2, -2)


def cache(subject: Subject) -> Iterator[Result]:
    """The second half of the sequence token by token over the cache of the first half: every output as in one pass."""
    reason = _unfit(subject)
    if reason:
        yield Skipped("cache", reason)
        return
    wanted = subject.rows(subject.run(_bare(subject)))
    start = max(1, subject.length - STEPS)
    between = gap(subject, *_steps(subject, wanted, start, None))
    if not between.open:
        yield Passed(
            "cache", f"{subject.length - start} tokens one by one over a cache of {start}: {between}{_beyond(subject)}"
        )
        return
    if "position_ids" in subject.takes:
        for shift in (0, *SHIFTS):
            if not gap(subject, *_steps(subject, wanted, start, shift)).open:
                yield _offset(between, start, -shift, "while it decodes over a cache")
                return
    yield Finding(
        check="cache",
        severity="fault",
        where=f"token {start + (between.rows[0] if between.rows else 0)}, the first of {len(between.rows)} that differ",
        measured=f"decoding over a cache of {start} tokens against one pass: {between}",
        cause="the cache does not hold what one pass sees: a window that only one of the two keeps to, keys "
        "appended twice, in the wrong order "
        "or before their positions were applied, a mask that is not cut to the cache",
        mend="compare keys layer by layer with those of one pass; until then use_cache=False",
        row=start + (between.rows[0] if between.rows else 0),
        numbers={**between.numbers(), "start": start},
    )


def position_offset(subject: Subject) -> Iterator[Result]:
    """`generate`, from the prompt alone and with padding before it: every step's logits as in one pass over the bare
    text.
    """
    reason = _unfit(subject) or _mute(subject)
    if reason:
        yield Skipped("position-offset", reason)
        return
    n, gaps = subject.length, {}
    for left, way in ((0, "without padding"), (PADDING, f"behind {PADDING} positions of padding")):
        text, found = _generated(subject, left)
        between = gaps[way] = gap(subject, found, _one_pass(subject, text, 0))
        if not between.open:
            continue
        for shift in SHIFTS if "position_ids" in subject.takes else ():
            if not gap(subject, found, _one_pass(subject, text, shift)).open:
                yield _offset(between, n, shift, f"while it generates {way}")
                return
        takes_positions = "position_ids" in subject.takes
        yield Finding(
            check="position-offset",
            severity="fault",
            where=f"generation {way}, from step {between.rows[0]} on",
            measured=f"{STEPS} tokens generated {way}, against one pass over the same text: {between}",
            cause=(
                "generation tells other positions, or another mask, than one pass works out for itself"
                if not left
                else "positions count the padding, or its mask is lost while decoding"
            )
            if takes_positions
            else "forward takes no position_ids, so that positions count the padding"
            if left
            else "generation prepares other inputs",
            mend=(
                "derive position_ids from attention_mask (its running sum − 1) in forward itself, and hand "
                "attention_mask on in every step"
            ),
            row=n + between.rows[0],
            numbers={**between.numbers(), "padding": left},
        )
        return
    yield Passed(
        "position-offset",
        f"{STEPS} tokens generated {' and '.join(gaps)}, against one pass: {max(gaps.values(), key=_size)}",
    )


def _generated(subject: Subject, left: int) -> tuple[Any, Outputs]:
    """(the text with what was written, without padding; the logits of every step)."""
    import torch

    assert subject.mask is not None and subject.sequence is not None
    prompt = {
        name: part for name, part in subject.lengthened(left).items() if name in (subject.sequence, subject.mask.name)
    }
    with running(), torch.no_grad(), seeded(0):
        written = subject.model.generate(
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
    return written.sequences[:, left:], {"logits": torch.stack(written.logits, 1)}


def _one_pass(subject: Subject, text, shift: int) -> Outputs:
    """The logits that one pass gives for each written token; shift: written tokens stand so many positions further."""
    import torch

    given: dict[str, Any] = {subject.sequence or "": text}
    if shift:
        places = torch.arange(text.shape[1], device=text.device)
        given["position_ids"] = torch.where(places < subject.length, places, places + shift)[None]
    return {"logits": subject.run(given)["logits"][:, subject.length - 1 : -1].float()}


def _offset(between: Gap, start: int, shift: int, when: str) -> Finding:
    """The finding that positions are off by a known number; 0: given positions are right, the model's own are not."""
    if shift:
        words = f"positions that are {abs(shift)} too {'large' if shift > 0 else 'small'} explain it"
        cause = "the position of a new token is off: read before or after the cache was updated, or counted from 1"
    else:
        words = "with position_ids given it agrees"
        cause = "forward counts positions from 0 again where position_ids are not given, whatever the cache holds"
    return Finding(
        check="position-offset",
        severity="fault" if shift else "warning",
        where=f"from position {start} on, {when}",
        measured=f"{between}; {words}",
        cause=cause,
        mend="the first new token stands at past_key_values.get_seq_length(), read before the update"
        if shift
        else (
            "give position_ids in every step, as generate does; in the model, start from "
            "past_key_values.get_seq_length()"
        ),
        row=start,
        numbers={**between.numbers(), "offset": shift},
    )


def _size(between: Gap) -> float:
    return between.size


def _steps(subject: Subject, wanted: Outputs, start: int, shift: int | None) -> tuple[Outputs, Outputs]:
    """(the outputs of tokens one by one over a cache, the same of one pass); shift: positions are given, and moved by
    so many.
    """
    import torch

    assert subject.sequence is not None
    tokens = subject.given[subject.sequence]
    given = {
        name: part
        for name, part in _bare(subject).items()
        if name != subject.sequence and part.shape[:2] != tokens.shape[:2]
    }
    made = _cached(subject.call({**given, subject.sequence: tokens[:, :start], "use_cache": True}))
    parts = []
    for at in range(start, tokens.shape[1]):
        step = {
            **given,
            subject.sequence: tokens[:, at : at + 1],
            "past_key_values": made.past_key_values,
            "use_cache": True,
        }
        if shift is not None:
            step["position_ids"] = torch.tensor([[at + shift]], device=tokens.device)
        made = _cached(subject.call(step))
        parts.append(dict(floats(made)))
    found = {
        name: torch.cat([part[name] for part in parts], 1) for name in wanted if all(name in part for part in parts)
    }
    return found, {name: part[:, start:] for name, part in wanted.items()}


def _cached(made: Any) -> Any:
    """What a model returned, if it holds a cache."""
    if getattr(made, "past_key_values", None) is None:
        raise Incomparable("the model returns no past_key_values")
    return made


def _bare(subject: Subject) -> dict[str, Any]:
    """The inputs without the mask of the sequence itself: a cache is longer than it."""
    gone = subject.mask.name if subject.mask is not None and subject.mask.of == subject.sequence else None
    return {name: part for name, part in subject.given.items() if name != gone}


def _beyond(subject: Subject) -> str:
    """What is said of a window that the sequence does not fill."""
    window = getattr(subject.model.config.get_text_config(), "sliding_window", None)
    wide = isinstance(window, int) and window >= subject.length
    return f"; the window of {window} keys is not reached: take a longer text" if wide else ""


def _unfit(subject: Subject) -> str | None:
    """Why the model cannot be stepped over a cache."""
    if not subject.whole or not {"use_cache", "past_key_values"} <= subject.takes:
        return "the model does not take use_cache and past_key_values"
    if not subject.causal:
        return f"not declared causal: {subject.why}"
    if any("reference" in kind for kind in getattr(subject.model.config.get_text_config(), "layer_types", None) or ()):
        return "its window begins where the prompt ends, so that one pass over the whole is another computation"
    if subject.sequence is None or subject.length < 4:
        return "no input is a sequence of at least four positions"
    return None


def _mute(subject: Subject) -> str | None:
    """Why the model cannot generate behind padding."""
    if not subject.model.can_generate():
        return "the model does not generate"
    if subject.mask is None or subject.mask.of != subject.sequence:
        return "padding is not told along the sequence that is written"
    return None
