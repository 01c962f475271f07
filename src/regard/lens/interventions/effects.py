"""`effects`: how much each head, layer, token, edge or position matters: many interventions in one batch of forward
passes.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from ...common.errors import refuse
from ...language.expr import batch, key, query, table
from ..recording.keeper import Axes, layer_selection
from ..runs.effects import Effects
from .blocks import Blocks, block_of
from .change import Change, checked_heads
from .measures import measure_of
from .subject import Subject
from .what_if import WhatIf

Of = Literal["heads", "layers", "tokens", "edges", "stream"]
TOKENS = 2048  # of one forward pass: more is not faster (bench/LOG.md)
MOST = 1 << 16


def effects(
    model: Any = None,
    text: str | None = None,
    *,
    of: Of = "heads",
    measure: str | Callable[[Any], Any] | None = None,
    token: str | int | None = None,
    source: Any = None,
    target: str | None = None,
    inputs: Any = None,
    tokenizer: Any = None,
    layer: Sequence[int | str] | int | str | None = None,
    head: Sequence[int] | int | None = None,
) -> Effects:
    """How much the output of a model changes without each head, layer, token or edge, or with that of another text.

    effect = measure(model without it) - measure(model)

    Without a head or layer its output is 0, or what `source` says; without a token no other token attends to it; an
    edge is one pair (row, key). "stream" is a grid of layers and positions: after a block, one token has the residual
    stream of the source (activation patching). Many interventions share a forward pass, each in an entry of the batch
    of its own. Ctrl-C returns what was computed.

    Args:
        model: a folder, a hub id, None for the default model (MiniLM), a loaded transformers model on regard, or a
            module with `inputs`.
        text: the text, for models with a tokenizer.
        of: what is taken away: "heads", "layers", "tokens" or "edges"; or "stream".
        measure: "loss" (nats per token of the text), "logit" (of `token` after the text), "kl" (nats, from the
            probabilities of the unchanged model, mean over tokens), "cosine" (1 - cosine with the unchanged output,
            mean over tokens), or a function from the output of a batch to one number per entry. None is "loss" for
            models that write text, and "cosine" for others.
        token: the token whose logit is measured, as text or number; None is the likeliest.
        source: for heads, layers and the stream, what takes their place: a text, or `inputs`, of as many tokens: the
            same part of that run; a list of them: the mean over all tokens of these runs; None is 0.
        target: the target text of an encoder-decoder model.
        inputs: the arguments of the model, with a batch of 1, in the place of the text.
        tokenizer: the tokenizer of a loaded model.
        layer: the layers, by number, name or pattern; None is every layer.
        head: for tokens and edges, the heads in which they are cut; None is every head.

    Returns:
        The effects; print them for a ranked table.

    Raises:
        Refused: a model that `what_if` does not reach, one in training mode, batches of several entries, a measure that
            the output does not have, a source of other sizes, and more than 65,536 interventions.

    Source:
        Meng et al. 2022, Locating and Editing Factual Associations in GPT (patching); Wang et al. 2022,
        Interpretability in the Wild (means).

    Examples:
        >>> import torch, regard as rg
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        >>> rg.effects(layer, inputs=torch.randn(1, 8, 16)).values.shape
        (1, 2)
    """
    if of not in get_args(Of):
        raise refuse("effects", "of= is not known", f"of={of!r}", ", ".join(get_args(Of)), "leave it out")
    unused = {
        "head": head if of not in ("tokens", "edges") else None,
        "token": token if measure != "logit" else None,
        "source": source if of in ("tokens", "edges") else None,
    }
    if passed := [name for name, value in unused.items() if value is not None]:
        expected = "head= for tokens and edges, token= for measure='logit', source= for heads, layers and the stream"
        raise refuse(
            "effects", f"{passed[0]}= is not used", f"of={of!r}, measure={measure!r}", expected, "leave it out"
        )
    if (of == "stream" and source is None) or (isinstance(source, list) and not source):
        given = f"of={of!r}, source={source!r}"
        raise refuse("effects", "no source", given, "what takes its place", "pass source='another text'")
    subject = Subject.of(model, text, target, inputs, tokenizer)
    layers = layer_selection(layer, "effects")
    chosen = None if head is None else checked_heads(head)
    several = source if isinstance(source, list) else [] if source is None else [source]
    with torch.no_grad():
        own = Recorded(subject, layers)
        name, measured = measure_of(measure, own.out, subject, token)
        clean = float(measured(own.out)[0])
        runs = [Recorded(subject.with_input(each, target), layers) for each in several]
        grid = _Grid(of, own, _values(of, own, runs, isinstance(source, list)), chosen)
        values = np.full(grid.shape, np.nan)
        batches = grid.batches()
        screen = Console(stderr=True)
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            task = progress.add_task(f"effects of {of}", total=sum(map(len, batches)))
            try:
                for entries in batches:
                    with grid.changing(entries):
                        changed = measured(subject(len(entries)))
                    values[tuple(zip(*entries, strict=True))] = changed.double().cpu().numpy() - clean
                    progress.advance(task, len(entries))
            except KeyboardInterrupt:  # what was computed stays
                screen.print(f"interrupted: {np.isnan(values).sum()} of {values.size} effects are not known")
    return Effects(of, name, values, clean, grid.names, grid.axis.tokens)


Outputs = dict[str, torch.Tensor]


class Recorded:
    """One run of a model. out: its output · heads: the outputs (1, H, Q, E) of the chosen layers · repeated: those that
    are called twice · crossing: those that attend to another text · blocks: what its blocks return.
    """

    def __init__(self, subject: Subject, layers: tuple[int | str, ...] | None):
        self.subject, self.blocks = subject, Blocks(subject.model)
        self.heads: Outputs = {}
        self.crossing: set[str] = set()
        self.repeated: set[str] = set()
        self.chosen = Change(layers)

        def keep(name: str, out: torch.Tensor) -> torch.Tensor:
            if len(out) != 1:
                what, given = "a layer whose batch is not that of the model", f"{name}: {len(out)} entries of 1"
                raise refuse("effects", what, given, "one entry for a text", "choose other layers with layer=")
            if name in self.heads:
                self.repeated.add(name)
            if running.crosses():
                self.crossing.add(name)
            self.heads[name] = out
            return out

        def change_of(name: str, number: int | None) -> Change | None:
            return (
                Change(values={"output": functools.partial(keep, name)}) if self.chosen.selects(name, number) else None
            )

        running = WhatIf(subject.model, change_of)
        with running.changing(), self.blocks.watching():
            self.out = subject(1)
        if not self.heads:
            raise running.unreached()

    def parts(self, of: str) -> Outputs:
        """What is taken away: of the chosen layers what they return; of tokens and edges only layers in which the
        tokens of one text attend to one another, of the last text; of the stream what blocks return.
        """
        if of == "stream":
            return self.blocks.streams(self.heads)
        if of not in ("tokens", "edges"):
            return self.heads
        within = {name: out for name, out in self.heads.items() if name not in self.crossing}
        if not within:
            given, fix = ", ".join(self.heads), "choose other layers with layer="
            raise refuse("effects", "the tokens of another text", given, "attention within a text", fix)
        last, out = list(within.items())[-1]
        return {name: each for name, each in within.items() if _text(name, each) == _text(last, out)}


def _text(layer: str, out: torch.Tensor) -> tuple[str, int]:
    """What layers that read the same text have in common: their list of blocks, and the number of rows."""
    return block_of(layer).rpartition(".")[0], out.shape[-2]


def _values(of: str, own: Recorded, runs: list[Recorded], means: bool) -> dict[str, Any]:
    """What takes the place of each part: 0, that of another run, or its mean over the tokens of all runs."""
    parts = own.parts(of)
    if not runs:
        return dict.fromkeys(parts, 0)
    found: dict[str, Any] = {}
    for name, out in parts.items():
        if any(name in run.repeated for run in (own, *runs)):
            what, fix = "a source for a layer that is called twice", "choose other layers with layer="
            raise refuse("effects", what, name, "one call", fix)
        other = torch.cat([run.parts(of)[name] for run in runs], -2)
        if not means and other.shape != out.shape:
            given = f"{other.shape[-2]} tokens in {name}"
            fix = "choose a source with as many tokens, or pass a list for its mean"
            raise refuse("effects", "a source of another size", given, f"{out.shape[-2]} tokens", fix)
        found[name] = other.mean(-2, keepdim=True) if means else other
    return found


class _Grid:
    """What is taken away, entry by entry. shape: of the array of effects · names: of the layers, or blocks · axis: the
    tokens.
    """

    def __init__(self, of: str, own: Recorded, values: dict[str, Any], heads: Any):
        self.of, self.own, self.values, self.heads = of, own, values, heads
        parts, self.names = own.parts(of), tuple(values)
        tokens = list(parts.values())[-1].shape[-2]
        self.axis = Axes(own.subject.axes).of_layer(self.names[-1], tokens)
        self.counts = [out.shape[1] for out in parts.values()]
        sizes = {"heads": (len(parts), max(self.counts)), "layers": (len(parts),), "tokens": (tokens,)}
        self.shape: tuple[int, ...] = sizes.get(of, (len(parts) if of == "stream" else tokens, tokens))

    def batches(self) -> list[list[tuple[int, ...]]]:
        """The index of each intervention, in batches; those of one layer together, which share the blocks before it.
        Refused: too many.
        """
        found: list[tuple[int, ...]] = list(np.ndindex(self.shape))
        if self.of == "heads":
            found = [at for at in found if at[1] < self.counts[at[0]]]
        elif self.of == "edges" and self.own.subject.writes and self.axis.name != "source":
            found = [at for at in found if at[1] <= at[0]]
        if len(found) > MOST:
            given, fix = f"{len(found):,} {self.of}", "shorten the text"
            raise refuse("effects", "too many interventions", given, f"at most {MOST:,}", fix)
        size = max(1, TOKENS // len(self.axis))
        by = (lambda at: at[0]) if self.of in ("heads", "stream") else (lambda at: 0)
        groups = [list(group) for _, group in itertools.groupby(found, by)]
        return [group[first : first + size] for group in groups for first in range(0, len(group), size)]

    @contextlib.contextmanager
    def changing(self, entries: list[tuple[int, ...]]) -> Iterator[None]:
        """Inside the block, entry b of a batch has the intervention with the index `entries[b]`; blocks before the
        first change are not computed.
        """
        changes: dict[str, Change] = {}
        first, rows = entries[0][0], None
        if self.of in ("tokens", "edges"):
            first = 0
            keys = table(np.array([at[-1] for at in entries]), "keys")[batch]
            at_row = table(np.array([at[0] for at in entries]), "rows")[batch]
            others = query == key if self.of == "tokens" else query != at_row
            changes = dict.fromkeys(self.names, Change(heads=self.heads, mask=(key != keys) | others))
        elif self.of == "stream":
            rows = [at[1] for at in entries]
        else:
            for at in {entry[0] for entry in entries}:
                heads = range(self.counts[at])
                kept = [[layer != at or (head != [] and one not in head) for one in heads] for layer, *head in entries]
                value = functools.partial(_where, torch.tensor(kept)[..., None, None], self.values[self.names[at]])
                changes[self.names[at]] = Change(values={"output": value})
        name = self.names[first]
        reused = self.own.blocks.reused(name, len(entries), rows, self.values[name])

        def change_of(name: str, number: int | None) -> Change | None:
            return changes.get(name) if self.own.chosen.selects(name, number) else None

        with WhatIf(self.own.subject.model, change_of).changing(), reused:
            yield


def _where(kept: torch.Tensor, value: Any, out: torch.Tensor) -> torch.Tensor:
    """The outputs of the heads that are kept, and the value in the place of the others."""
    return torch.where(kept.to(out.device), out, value)
