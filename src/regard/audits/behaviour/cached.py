"""Whether decoding over a cache gives what one pass gives, and whether its positions count on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..finding import Finding, Passed, Result, Skipped
from ..gap import Gap, gap
from ..subject import Outputs, Subject

__all__ = ["cache", "position_offset"]

STEPS = 8
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
        yield Passed("cache", f"{subject.length - start} tokens one by one over a cache of {start}: {between}")
        return
    if "position_ids" in subject.takes:
        for shift in (0, *SHIFTS):
            if not gap(subject, *_steps(subject, wanted, start, shift)).open:
                yield _offset(between, start, -shift, "while it decodes over a cache")
                return
    yield Finding(
        "cache", "fault", f"token {start + (between.rows[0] if between.rows else 0)}, the first of {len(between.rows)} that differ",
        f"decoding over a cache of {start} tokens against one pass: {between}",
        "the cache does not hold what one pass sees: keys appended twice, in the wrong order, before their positions were applied, or "
        "a mask that is not cut to the cache; or one pass sees the future (future-leak)",
        "compare keys layer by layer with those of one pass; until then use_cache=False",
        row=start + (between.rows[0] if between.rows else 0), numbers={**between.numbers(), "start": start},
    )  # fmt: skip


def position_offset(subject: Subject) -> Iterator[Result]:
    """`generate` from a prompt that is padded on the left: every step's logits as in one pass over the text without padding."""
    import torch

    reason = _unfit(subject) or _mute(subject)
    if reason:
        yield Skipped("position-offset", reason)
        return
    assert subject.mask is not None and subject.sequence is not None
    prompt = {name: part for name, part in subject.lengthened(left=3).items() if name in (subject.sequence, subject.mask.name)}
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        written = subject.model.generate(
            **prompt, max_new_tokens=STEPS, min_new_tokens=STEPS, do_sample=False, num_beams=1, use_cache=True,
            output_logits=True, return_dict_in_generate=True, pad_token_id=subject.pad,
        )  # fmt: skip
    whole = written.sequences[:, 3:]
    found = {"logits": torch.stack(written.logits, 1)}
    n = subject.length

    def one_pass(shift: int) -> Outputs:
        given: dict[str, Any] = {subject.sequence: whole}
        if shift:
            late = torch.arange(whole.shape[1], device=whole.device)
            given["position_ids"] = torch.where(late < n, late, late + shift)[None]
        return {"logits": subject.run(given)["logits"][:, n - 1 : -1].to(found["logits"])}

    between = gap(subject, found, one_pass(0))
    if not between.open:
        yield Passed("position-offset", f"{STEPS} tokens generated behind 3 of left padding, against one pass: {between}")
        return
    for shift in SHIFTS if "position_ids" in subject.takes else ():
        if not gap(subject, found, one_pass(shift)).open:
            yield _offset(between, n, shift, "while it generates behind left padding")
            return
    yield Finding(
        "position-offset", "fault", f"step {between.rows[0] if between.rows else 0} of generation behind left padding",
        f"{STEPS} tokens generated behind 3 of padding, against one pass over the same text without it: {between}",
        "positions count the padding, or the mask of the padding is lost while decoding",
        "derive position_ids from attention_mask (its running sum − 1), and hand attention_mask on in every step",
        row=n + (between.rows[0] if between.rows else 0), numbers=between.numbers(),
    )  # fmt: skip


def _offset(between: Gap, start: int, shift: int, when: str) -> Finding:
    """The finding that positions are off by a known number."""
    words = (
        f"positions that are {abs(shift)} too {'large' if shift > 0 else 'small'}"
        if shift
        else "positions of its own that do not count on"
    )
    return Finding(
        "position-offset", "fault", f"from position {start} on, {when}",
        f"{between}; the difference is explained by {words}",
        "position = number of cached tokens is off by one: counted before the cache was updated or after, or from 1",
        "the first new token stands at past_key_values.get_seq_length(), read before the update",
        row=start, numbers={**between.numbers(), "offset": shift},
    )  # fmt: skip


def _steps(subject: Subject, wanted: Outputs, start: int, shift: int | None) -> tuple[Outputs, Outputs]:
    """(the outputs of tokens one by one over a cache, the same of one pass); shift: positions are given, and moved by so many."""
    import torch

    assert subject.sequence is not None
    tokens = subject.given[subject.sequence]
    given = {
        name: part for name, part in _bare(subject).items() if name != subject.sequence and part.shape[:2] != tokens.shape[:2]
    }
    made = subject.call({**given, subject.sequence: tokens[:, :start], "use_cache": True})
    parts = []
    for at in range(start, tokens.shape[1]):
        step = {**given, subject.sequence: tokens[:, at : at + 1], "past_key_values": made.past_key_values, "use_cache": True}
        if shift is not None:
            step["position_ids"] = torch.tensor([[at + shift]], device=tokens.device)
        made = subject.call(step)
        parts.append({name: made[name] for name in wanted})
    found = {name: torch.cat([part[name] for part in parts], 1) for name in wanted}
    return found, {name: part[:, start:] for name, part in wanted.items()}


def _bare(subject: Subject) -> dict[str, Any]:
    """The inputs without the mask of the sequence itself: a cache is longer than it."""
    gone = subject.mask.name if subject.mask is not None and subject.mask.of == subject.sequence else None
    return {name: part for name, part in subject.given.items() if name != gone}


def _unfit(subject: Subject) -> str | None:
    """Why the model cannot be stepped over a cache."""
    if not subject.whole or not {"use_cache", "past_key_values"} <= subject.takes:
        return "the model does not take use_cache and past_key_values"
    if not subject.causal:
        return f"not declared causal: {subject.why}"
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
