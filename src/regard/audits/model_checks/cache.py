"""The checks cache and position-offset: decoding with a key/value cache, which a model takes and returns or keeps
itself, matches one forward pass, with the right positions. Where it does not, the first attention call in which a step
sees something else than the same row of one forward pass shows why.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from ...common.text.units import counted
from ...lens import Call
from ..evidence import script
from ..finding import Difference, Finding, NotApplicable, Passed, difference, found, passed
from ..subject import Outputs, Raised, Subject, floats, modules_of, parameters_of, raising, seeded
from .runs import Cause, batched, recorded

CLOSE = 1e-3  # relative to the largest number


APPEND = "append the new keys and values after those of the cache, once, and return or keep the result"
ALIGN = "align the causal mask with the end of the keys: row i of n new tokens sees the first (keys − n + i + 1) keys"
ROTATE = "rotate queries and keys by their positions, which begin at the length of the cache, before keys are appended"
BEGIN = "read the length of the cache once, before any layer appends to it, and count the new positions from there"
UNREAD = Cause("this layer does not read the cache: a step sees its own keys only", APPEND)
NOT_APPENDED = Cause("new keys are not appended to the cache, which keeps those of its first step only", APPEND)
REPLACED = Cause(
    "the oldest keys are lost: new keys replace (overwrite) them, or only the cache applies a sliding window",
    "append new keys; a sliding window has to be that of the mask of one forward pass",
)
TWICE = Cause("keys are appended twice: there are more of them than tokens", APPEND)
TOP_LEFT = Cause(
    "the causal mask of several new tokens is aligned at the top left, as is_causal=True does: their first row sees "
    "the first key only, instead of the whole cache",
    ALIGN,
)
UNMASKED = Cause("no causal mask among several new tokens: they see each other's later tokens", ALIGN)
HIDDEN = Cause("the mask of a step hides keys of the cache: it is not sliced to the length of the cache", ALIGN)
SHOWN = Cause(
    "a step sees keys that the mask of one forward pass hides: only one of the two applies a sliding window", ALIGN
)
ORDER = Cause("the cache holds its keys, or its values, in the wrong order", APPEND)
UNROTATED = Cause(
    "keys are kept unrotated (before their rotary positions are applied), or rotated again, while queries are right",
    ROTATE,
)
QUERY = Cause("the new query is not rotated by its position, as keys are", ROTATE)
UPPER = Cause(
    "positions of upper layers are ahead: they are read from the length of the cache after the first layer appended "
    "to it",
    BEGIN,
)
OVERWRITTEN = Cause("the cache changes what it keeps: keys and values of earlier tokens are overwritten", APPEND)
VALUES = Cause(
    "the values in the cache are not those of one forward pass: lost, or not reordered with the keys", APPEND
)
BIAS = Cause(
    "the position bias has no offset: its rows count from 0 again, not from the length of the cache",
    "add the length of the cache to the positions of the rows before the bias (ALiBi, relative positions) is computed",
)
POSITION = Cause("the position of a new token is wrong", BEGIN)
RESTART = Cause("positions restart: a new token is given position 0, as without a cache", BEGIN)
BELOW = Cause(
    "the input of this layer differs, although the attention below agrees: another layer below it has no memory of the "
    "tokens before, or starts anew",
    "keep the state of that layer, such as the last inputs of a convolution, next to the keys and values",
)


def explain(decoder: Decoder, first: int, end: int) -> tuple[str, Cause] | None:
    """(the attention call, the cause) of what goes wrong in the step of these tokens; None if no call shows it."""
    subject = decoder.subject
    full = _calls(subject, subject.inputs)
    with decoder.unchanged():
        cuts = [cut for cut in decoder.cuts if cut <= first]
        *_, (_, memory) = decoder.steps(subject.inputs, cuts)
        step = _calls(subject, decoder.given(subject.inputs, memory, first, end))
    pairs = [
        (one, other)
        for one, other in zip(full, step, strict=False)
        if one.name == other.name and other.shape[1] == end - first < one.shape[1]
    ]
    for layer, (one, other) in enumerate(pairs):
        for row in range(end - first):
            cause = _changed(one, other, first + row, row, end)
            if cause is POSITION:
                cause = _placed(subject, other, first) if not layer else UPPER
            if cause is not None:
                return other.name, cause
    return None


def _calls(subject: Subject, inputs: Mapping[str, Any]) -> list[Call]:
    """The attention calls of one run that were recorded with queries, keys and values."""
    return [call for call in recorded(subject, inputs) if call.given is None and call.v is not None]


def _seen(call: Call, row: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """(the keys that a row attends to; its query, and the keys, values and scores at them)."""
    at = np.flatnonzero(call.allowed([row], heads=0))
    query, keys, values = (np.asarray(part)[:, rows] for part, rows in ((call.q, [row]), (call.k, at), (call.v, at)))
    return at, {"q": query, "k": keys, "v": values, "scores": call.scores([row], at).swapaxes(1, 2)}


def _changed(one: Call, other: Call, at: int, row: int, end: int) -> Cause | None:
    """What the row of a step sees else than the row `at` of one forward pass."""
    (old, right), (new, seen) = _seen(one, at), _seen(other, row)
    if len(new) < len(old):
        if other.shape[2] >= len(old):
            return TOP_LEFT if len(new) == row + 1 and end > at - row + 1 else HIDDEN
        if len(new) <= row + 1:
            return UNREAD
        return NOT_APPENDED if _differ(right["k"][:, -len(new) :], seen["k"]) else REPLACED
    if len(new) > len(old):
        return TWICE if other.shape[2] > end else UNMASKED if new[-1] > at else SHOWN
    off = {name: _differ(part, seen[name]) for name, part in right.items()}
    if any(off[name] and _permuted(right[name], seen[name]) for name in "kv"):
        return ORDER
    if off["k"] and off["v"]:
        return OVERWRITTEN if len(new) - 1 not in off["k"] else BELOW if one.layer else POSITION
    if off["k"]:
        return POSITION if off["q"] else UNROTATED
    return VALUES if off["v"] else QUERY if off["q"] else BIAS if off["scores"] else None


def _placed(subject: Subject, step: Call, first: int) -> Cause:
    """Which position the new token of a step has: that of the one in which another text has the same key for it."""
    import torch

    for place in (0, *range(first - 2, first + 3)):
        text = {
            name: torch.cat([part[:, :place], part[:, first : first + 1]], 1) if name in subject.of_sequence else part
            for name, part in subject.inputs.items()
        }
        keys = [np.asarray(call.k)[:, -1:] for call in _calls(subject, text) if call.name == step.name]
        if keys and not _differ(keys[0], np.asarray(step.k)[:, [-step.shape[1]]]):
            size = "large" if place > first else "small"
            words = f"positions are {abs(place - first)} too {size}: the length of the cache is read at the wrong time"
            return POSITION._replace(words=words) if place else RESTART
    return POSITION


def _differ(one: np.ndarray, other: np.ndarray) -> list[int]:
    """Which rows of two arrays (heads, rows, …) differ."""
    off = np.abs(np.subtract(one, other, dtype=np.float64)).max((0, 2))
    return np.flatnonzero(~(off <= CLOSE * np.abs(one).max(initial=0))).tolist()


def _permuted(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether these rows of two arrays are the same, in another order."""
    a, b = (np.sort(part.sum((0, 2), dtype=np.float64)) for part in (one, other))
    return np.allclose(a, b, rtol=0, atol=CLOSE)


STEPS = 8  # tokens that are generated
PADDING = 3
BEAMS = [2, 0, 0]  # of three entries, as beam search may choose them

UNKNOWN = Cause(
    "no recorded attention call shows what differs: compare keys and values with those of one forward pass",
    "compare the keys with those of one forward pass, layer by layer; until then decode without a cache",
)
UNPLACED = Cause(
    "without position_ids, positions restart: forward counts from 0 again; if position_ids are passed, outputs agree",
    "pass position_ids in every step, as generate does; in forward, count from the cache's get_seq_length()",
)
FIRST_ENTRY = Cause(
    "only the first entry of the batch is written to the cache, or read from it",
    "write and read all entries: cache[:batch, …]",
)
MIXED = Cause(
    "entries of the batch are mixed up in the cache, so one reads the keys of another",
    "check every view, transpose and index of the cache that involves the batch axis",
)
REBEAMSED = Cause(
    "reordering the cache does nothing, or not the same to keys, values and all layers: beams continue with the keys "
    "of others",
    "reorder keys and values of every layer by the same entries: index_select(0, beam_idx)",
)


def cache(subject: Subject) -> Finding | Passed:
    """The last tokens of the sequence, decoded with a cache of the first, one by one and then several at once: every
    output matches one forward pass. So do those of a batch, and after its entries were reordered. The first attention
    call in which a step sees something else says why. Cannot see caches that no argument or attribute names (past,
    cache, kv), and what happens beyond the sequence, such as a full cache.
    """
    if reason := _unsupported(subject):
        raise NotApplicable(reason)
    decoder, between = _decoder(subject.without_padding)
    if between.significant:
        if (finding := _finding(decoder, between)) is not None:
            return finding
        decoder = replace(decoder, several=0)
        between = _difference(decoder)
    measured = {"alone": between}
    for way, each, cause in _in_batches(decoder):
        measured[way] = each
        if each.significant:
            return found(
                "cache",
                "fault",
                f"{each.output}, {way}",
                f"between decoding with a cache and one forward pass, {way}, {each}",
                *cause,
            )
    steps = (
        f"{subject.length - decoder.start} tokens, {decoder.several} of them at once, with a cache of {decoder.start}"
    )
    return passed("cache", f"{steps}; {', '.join(measured)}", measured.values(), _untested(subject))


def _decoder(subject: Subject) -> tuple[Decoder, Difference]:
    """How a subject decodes, and the difference from one forward pass: the way in which fewest tokens differ. Several
    tokens at once are left out where a model that is not one of transformers raises.
    """
    errors = []
    for several in (SEVERAL,) if subject.is_transformers else (SEVERAL, 0):
        ran = []
        for decoder in decoders(subject, several):
            try:
                ran.append((decoder, _difference(decoder)))
            except Raised as error:
                errors.append(error)
        if ran:
            if ran[0][0].name is None and not any(decoder.remembers for decoder, _ in ran):
                raise NotApplicable("the model keeps no cache: a step changes nothing that it holds")
            return min(ran, key=lambda each: len(each[1].rows) if each[1].significant else 0)
    raise errors[0]


def _difference(decoder: Decoder) -> Difference:
    expected = decoder.subject.rows(decoder.subject.outputs)
    actual = decoder.decoded(decoder.subject.inputs, decoder.cuts)
    return difference(decoder.subject, actual, {name: part[:, decoder.start :] for name, part in expected.items()})


def _finding(decoder: Decoder, between: Difference) -> Finding | None:
    """The finding of steps that differ from one forward pass, with the cause that their attention calls show. None for
    several tokens at once that no attention call explains: other layers may support steps of one token only.
    """
    first = decoder.start + (between.row or 0)
    begin = max(cut for cut in decoder.cuts if cut <= first)
    end = min(cut for cut in decoder.cuts if cut > first)
    placed = replace(decoder, place=("position_ids", "rows"))
    counts_again = "position_ids" in decoder.subject.parameters and not _difference(placed).significant
    call, cause = ("", UNPLACED) if counts_again else explain(decoder, begin, end) or ("", UNKNOWN)
    if end > begin + 1 and cause in (UNKNOWN, BELOW):
        return None
    return found(
        "cache",
        "warning" if counts_again else "fault",
        f"token {first}, the first of {len(between.rows)} that differ{call and f', {call}'}",
        f"between decoding {counted(end - begin, 'token')} at once with a cache of {counted(begin, 'token')} and one "
        f"forward pass, {between}",
        *cause,
        row=first,
        numbers=between.numbers(start=decoder.start),
        evidence=_shown(decoder, between.output),
    )


def _shown(decoder: Decoder, output: str) -> str:
    """A script that decodes; "" for a model that keeps its cache, or takes where a step begins."""
    if decoder.name is None or decoder.place is not None:
        return ""
    return script(
        replace(decoder.subject, ordered=()),
        output,
        "past = None",
        f"for first, end in {[*pairwise([0, *decoder.cuts])]}:",
        f"    step = {{name: part[:, first:end] if name in {sorted(decoder.subject.of_sequence)} else part "
        "for name, part in inputs.items()}",
        f"    result = model(**step, {decoder.name}=past, **{dict(decoder.constant)})",
        f"    past = result[{decoder.name!r}] if hasattr(result, 'keys') else result[1]",
        "    print(end, (read(result) - run(inputs)[:, first:end]).abs().max())  # 0, or rounding, in every step",
    )


def _in_batches(decoder: Decoder) -> Iterator[tuple[str, Difference, Cause]]:
    """(which, the difference from one forward pass, its likely cause) of three entries, before and after they are
    reordered, as beam search does. Nothing where the model has no batches, or keeps a cache for one entry.
    """
    subject, start = decoder.subject, decoder.start
    if not all(part.ndim and part.shape[0] == 1 for part in subject.inputs.values()):
        return
    inputs, order = batched(subject), BEAMS if decoder.reorders else [0, 1, 2]
    right = {name: part[:, start:] for name, part in subject.rows(subject.run(inputs)).items() if len(part) == 3}
    try:
        actual = decoder.decoded(inputs, [start, start + 1, start + 2], order)
    except Raised:
        if decoder.name:
            raise
        return
    for which, entries, sources, at, cause in (
        ("the first entry of a batch", [0], [0], 0, MIXED),
        ("the other entries of a batch", [1, 2], [1, 2], 0, FIRST_ENTRY),
        ("entries after the cache was reordered", [0, 1, 2], order, 1, REBEAMSED),
    ):
        one, other = (
            {name: part[chosen, at] for name, part in parts.items()}
            for parts, chosen in ((actual, entries), (right, sources))
        )
        if right:
            yield which, difference(subject, one, other), cause


def position_offset(subject: Subject) -> Finding | Passed:
    """`generate`, on the prompt alone and after left padding: the logits of every step match one forward pass over the
    text without padding.

    Finds positions that count padding, and masks that are lost while decoding. Cannot see other ways of decoding than
    greedy search, nor models outside of transformers.
    """
    if reason := _unsupported(subject) or _cannot_generate(subject):
        raise NotApplicable(reason)
    subject = subject.without_padding
    n, measured = subject.length, {}
    for left, way in ((0, "without padding"), (PADDING, f"after {PADDING} positions of left padding")):
        text, actual = _generated(subject, left)
        logits = subject.run({subject.sequence or "": text})["logits"][:, n - 1 : -1]
        between = measured[way] = difference(subject, actual, {"logits": logits.float()})
        if not between.significant:
            continue
        return found(
            "position-offset",
            "fault",
            f"generation {way}, from step {between.rows[0]} on",
            f"between {STEPS} tokens generated {way} and one forward pass over the same text, {between}",
            "generate passes other positions, another mask or other inputs than one forward pass computes for itself"
            if not left
            else "positions count the padding (forward takes no position_ids, or ignores them), or the padding mask is "
            "lost during decoding",
            "compute position_ids from attention_mask (its cumulative sum − 1) in forward itself, and pass "
            "attention_mask in every step",
            row=n + between.rows[0],
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
        if not steps and not left:  # what it does not support is this call, not decoding
            raise NotApplicable(
                f"generate refused the arguments of this check before its first step: {error}"
            ) from error
        raise
    finally:
        counting.remove()
    return generated.sequences[:, left:], {"logits": torch.stack(generated.logits, 1)}


def _untested(subject: Subject) -> str:
    """A remark for a sliding window that is longer than the sequence."""
    window = _setting(subject, "sliding_window")
    wide = isinstance(window, int) and window >= subject.length
    return f"; the text does not exceed the sliding window of {window} keys: use a longer text" if wide else ""


def _unsupported(subject: Subject) -> str | None:
    """Why the model cannot decode with a cache; None if it can."""
    if not decoders(subject):
        return "the model takes no cache of keys and values, and keeps none"
    if not subject.causal:
        return f"not declared causal: {subject.causal_source}"
    if any("reference" in kind for kind in _setting(subject, "layer_types") or ()):
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


def _setting(subject: Subject, name: str) -> Any:
    """A value of the configuration, where there is one."""
    return getattr(subject.model.config.get_text_config(), name, None) if subject.is_transformers else None


def _cannot_generate(subject: Subject) -> str | None:
    """Why the model cannot generate after left padding; None if it can."""
    if not subject.is_transformers or not subject.model.can_generate():
        return "the model cannot generate"
    if subject.mask is None or subject.mask.of != subject.sequence:
        return "the model takes no padding mask for the sequence that it generates"
    if subject.inputs[subject.sequence].is_floating_point():
        return f"{subject.sequence} are vectors, which generate does not continue as a text: pass token ids"
    longest = _setting(subject, "max_position_embeddings")
    needed = subject.without_padding.length + PADDING + STEPS
    if isinstance(longest, int) and longest < needed:
        return f"it has {longest} positions, and {needed} are needed: pass a shorter text"
    return None


PLACES = ("start", "offset", "len", "pos")  # in the names of arguments that say where a step begins
SEVERAL = 3  # tokens of a last step, which a causal mask of its own rows is for


@dataclass(frozen=True)
class Decoder:
    """A subject that decodes. name: the argument that takes the cache; None: the model keeps it · constant: the other
    arguments of a step · several: the tokens of the last step · place: the argument that says where a step begins, and
    its form.
    """

    subject: Subject
    name: str | None
    constant: Mapping[str, Any]
    several: int = SEVERAL
    place: tuple[str, str] | None = None

    @property
    def start(self) -> int:
        """The number of tokens of the first step."""
        return max(1, self.subject.length - 8)

    @property
    def cuts(self) -> list[int]:
        """Where the steps end: after the first tokens, then after each further one, and after several at once."""
        length = self.subject.length
        last = length - min(self.several, (length - self.start) // 2)
        return [*range(self.start, last + 1), *[length] * (last < length)]

    def given(self, inputs: Mapping[str, Any], memory: Any, first: int, end: int) -> dict[str, Any]:
        """The arguments of the step of these tokens."""
        import torch

        along = self.subject.of_sequence
        made = {name: part[:, first:end] if name in along else part for name, part in inputs.items()}
        made |= self.constant
        if self.name is not None and first:
            made[self.name] = memory
        if self.place is not None and first:
            name, form = self.place
            row = torch.arange(first, end, device=inputs[self.subject.sequence or ""].device)
            made[name] = first if form == "number" else row if form == "row" else row[None]
        return made

    def memory(self, result: Any) -> Any:
        """The cache among what a step returned."""
        if self.name is None:
            return None
        named = result.get(self.name) if isinstance(result, Mapping) else getattr(result, self.name, None)
        held = result[1:] if isinstance(result, tuple) else (named,)
        memory = next((part for part in held if part is not None and getattr(part, "ndim", 5) > 4), None)
        if memory is None:
            raise NotApplicable(f"the model returns no {self.name}")
        return memory

    def steps(
        self, inputs: Mapping[str, Any], cuts: Sequence[int], order: Sequence[int] = ()
    ) -> Iterator[tuple[Outputs, Any]]:
        """(outputs of every step, the cache after it). order: of the entries of the batch, before the last step."""
        import torch

        memory = None
        for first, end in pairwise([0, *cuts]):
            if order and self.reorders and end == cuts[-1]:
                inputs = {name: part[order] for name, part in inputs.items()}
                memory = self._reordered(memory, torch.tensor(order, device=inputs[self.subject.sequence or ""].device))
            result = self.subject.call(self.given(inputs, memory, first, end))
            memory = self.memory(result)
            yield dict(floats(result)), memory

    def decoded(self, inputs: Mapping[str, Any], cuts: Sequence[int], order: Sequence[int] = ()) -> Outputs:
        """The outputs of all tokens that are decoded after the first step."""
        import torch

        with self.unchanged():
            parts = [part for part, _ in self.steps(inputs, cuts, order)][1:]
        names = [name for name in self.subject.rows(self.subject.outputs) if all(name in part for part in parts)]
        return {name: torch.cat([part[name] for part in parts], 1) for name in names}

    def unchanged(self) -> contextlib.AbstractContextManager:
        """Leaves a model that keeps its cache as it was."""
        from ..restored import restored

        return contextlib.nullcontext() if self.name else restored(_owner(self.subject.model))

    @property
    def remembers(self) -> bool:
        """Whether a cache that the model keeps is changed by a step, or changes the output of the next one: what is
        named like a cache may be a table of positions.
        """
        import torch

        inputs, start = self.subject.inputs, self.start
        with self.unchanged():
            alone = dict(floats(self.subject.call(self.given(inputs, None, start, start + 1))))
        with self.unchanged():
            before = _kept(self.subject.model)
            steps = self.steps(inputs, [start, start + 1])
            next(steps)
            changed = _kept(self.subject.model) != before
            after, _ = next(steps)
        return changed or any(not torch.equal(part, after[name]) for name, part in alone.items() if name in after)

    @property
    def reorders(self) -> Any:
        """What reorders the entries of a cache for beam search: a method of the model, or of transformers' cache."""
        owner = _owner(self.subject.model)
        own = getattr(owner, "_reorder_cache", getattr(owner, "reorder_cache", None))
        return own or (self.subject.is_transformers and (lambda memory, order: memory.reorder_cache(order)))

    def _reordered(self, memory: Any, order: Any) -> Any:
        """The cache with its entries in another order, which a model may change or return."""
        made = self.reorders(memory, order) if self.name else self.reorders(order)
        return memory if made is None else made


def decoders(subject: Subject, several: int = SEVERAL) -> list[Decoder]:
    """The ways in which a subject may decode: one for each form in which it may take where a step begins."""
    if subject.is_transformers:
        return [Decoder(subject, subject.cache, {"use_cache": True}, several)] if subject.cache else []
    free = {name: each.default for name, each in parameters_of(subject.model).items() if name not in subject.inputs}
    holds = [name for name in free if _names_a_cache(name)]
    switches = [name for name in holds if isinstance(free[name], bool)]
    taken = next((name for name in holds if free[name] is None), None)
    places = [name for name in free if any(word in name for word in PLACES) and name not in holds]
    if not taken and not (_kept(subject.model) and (switches or places)):
        return []
    plain = Decoder(subject, taken, dict.fromkeys(switches, True), several)
    placed = [replace(plain, place=(name, form)) for name in places for form in ("number", "row", "rows")]
    return [*placed, *[plain] * bool(taken or switches)]


def _owner(model: Any) -> Any:
    """The module of a bound method; others are their own."""
    return getattr(model, "__self__", model)


def _kept(model: Any) -> dict[tuple[int, str], tuple[int, int]]:
    """What a module keeps under the name of a cache: which object, and how often a tensor was written to."""
    return {
        (number, name): (id(part), getattr(part, "_version", 0))
        for number, module in enumerate(modules_of(_owner(model)))
        for name in dir(module)
        if _names_a_cache(name) and not callable(part := getattr(module, name))
    }


def _names_a_cache(name: str) -> bool:
    """Whether a name is that of a cache: `past_key_values`, `kv_cache`, `kv`; not `qkv`."""
    return "past" in name.lower() or "cache" in name.lower() or "kv" in name.lower().split("_")
