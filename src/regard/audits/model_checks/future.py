"""The check future-leak: the outputs of a causal model must not depend on later positions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..difference import Difference, difference, listed, not_by_chance, passed, positions
from ..finding import Finding, NotApplicable, Passed, found
from ..subject import ADDED, ONE_TOKEN, Subject, flags

PROBES = 6


def future_leak(subject: Subject) -> Finding | Passed:
    """For several positions t, all tokens from t on are replaced; every output before t must stay the same.

    This is repeated without a mask, with padding after the tokens, and during cache prefill, because models build a
    different mask in each case.
    """
    if subject.sequence is None or subject.length < 2:
        raise NotApplicable("no input is a sequence of at least two positions")
    if not subject.causal:
        raise NotApplicable(f"not declared causal: {subject.causal_source}")
    if not subject.can_change(subject.sequence):
        raise NotApplicable(ONE_TOKEN)
    if not subject.rows(subject.outputs):
        raise NotApplicable("no output has a row for each position")
    ways = subject.unmasked
    if subject.mask is not None and subject.mask.of == subject.sequence and subject.can_be_padded:
        ways["with padding"] = subject.padded(right=ADDED)
    if subject.is_transformers and {"use_cache", "past_key_values"} <= subject.parameters:
        ways["during cache prefill"] = {**subject.without_mask(), "use_cache": True}
    measured = {way: probe(subject, inputs) for way, inputs in ways.items()}
    leaks = {way: [(t, each) for t, each in probes if each.significant] for way, probes in measured.items()}
    if not any(leaks.values()):
        return passed(
            "future-leak",
            f"outputs before t = {listed([t for t, _ in next(iter(measured.values()))])} do not depend on later tokens",
            (each for probes in measured.values() for _, each in probes),
        )
    way, (t, worst) = max(
        ((way, each) for way, probes in leaks.items() for each in probes), key=lambda each: each[1][1].size
    )
    reach = max(t - min(each.rows) for probes in leaks.values() for t, each in probes)
    leaking = [way for way in leaks if leaks[way]]
    cause, fix = _reason(subject, leaking, [way for way in ways if way not in leaking], reach)
    return found(
        "future-leak",
        "fault",
        f"{positions(worst.rows)}, which should not depend on tokens from position {t} on, {' and '.join(leaking)}",
        f"with tokens {t} to {subject.length - 1} replaced, {worst} before position {t}; "
        f"{len(leaks[way])} of {len(measured[way])} probed positions leak, from up to {reach} "
        f"position{'s' * (reach != 1)} ahead; declared causal by {subject.causal_source}",
        cause,
        fix,
        row=max(worst.rows),
        numbers=worst.numbers(changed_from=t, reach=reach, ways=leaking),
    )


def probe(subject: Subject, inputs: Mapping[str, Any]) -> list[tuple[int, Difference]]:
    """(t, difference of the outputs before t) for each probed position t. A difference is significant only if two
    different replacements of the tokens cause it.
    """
    assert subject.sequence is not None
    import torch

    n, sequence = subject.length, inputs[subject.sequence]
    reference = subject.rows(subject.run(inputs), sequence.shape[1])
    probes = []
    for t in sorted({max(1, round(n * part / PROBES)) for part in range(PROBES)} | {n - 1}):
        both = []
        for turn in range(2):
            other = torch.cat([sequence[:, :t], subject.redrawn(sequence[:, t:n], turn, sequence), sequence[:, n:]], 1)
            changed = subject.rows(subject.run({**inputs, subject.sequence: other}), sequence.shape[1])
            both.append(
                difference(
                    subject,
                    {name: part[:, :t] for name, part in changed.items()},
                    {name: part[:, :t] for name, part in reference.items()},
                )
            )
            if not both[-1].significant:
                break
        probes.append((t, not_by_chance(both)))
    return probes


def _reason(subject: Subject, leaking: list[str], tight: list[str], reach: int) -> tuple[str, str]:
    """(likely cause, fix) of a leak from up to `reach` positions ahead."""
    if flags(getattr(subject.model, "decoder", subject.model), "is_decoder") == {False}:
        return (
            "the configuration of the decoder has is_decoder=False, so it attends in both directions",
            "set config.is_decoder = True before the model is created",
        )
    layers = getattr(subject.model.config.get_text_config(), "num_hidden_layers", 1) if subject.is_transformers else 1
    if reach <= layers < subject.length // 2:
        return (
            "the causal mask is off by one in at least one layer: key ≤ query + 1 instead of key ≤ query",
            "let row i attend to key j only if j ≤ i; shift the labels, not the inputs",
        )
    if tight:
        return (
            (
                f"the causal mask is missing {' and '.join(leaking)}, but present {' and '.join(tight)}: one of the "
                "code paths that build the mask omits it"
            ),
            "build the causal mask in every case; until then try another attn_implementation, and audit again",
        )
    return (
        "attention without a causal mask, an inverted mask, or a view or norm that mixes positions",
        "mask the keys after the query in every layer, and check every view that involves the position and head axes",
    )
