"""`effects`: how much each head, layer, token or edge matters: many interventions in one batch of forward passes,
which reuse the blocks before the first change (`Blocks`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from ...common.errors import refuse
from ...language.expr import batch, key, query, table
from ...language.expr import head as the_head
from ...observe.observed_call import ObservedCall
from ..recording.keeper import layer_selection
from ..runs.effects import Effects
from .measures import Subject, measure_of
from .what_if import Change, WhatIf, checked_heads

Of = Literal["heads", "layers", "tokens", "edges"]
TOKENS = 2048  # of one forward pass: more is not faster (bench/LOG.md)
MOST = 1 << 16


def effects(
    model: Any = None,
    text: str | None = None,
    *,
    of: Of = "heads",
    measure: str | Callable[[Any], Any] | None = None,
    token: str | int | None = None,
    target: str | None = None,
    inputs: Any = None,
    tokenizer: Any = None,
    layer: Sequence[int | str] | int | str | None = None,
    head: Sequence[int] | int | None = None,
) -> Effects:
    """How much the output of a model changes without each head, layer, token or edge.

    effect = measure(model without it) - measure(model)

    Without a head or layer its output is 0; without a token no other token attends to it; an edge is one pair (row,
    key). Many interventions share a forward pass, each in an entry of the batch of its own. Ctrl-C returns what was
    computed.

    Args:
        model: a folder, a hub id, None for the default model (MiniLM), a loaded transformers model on regard, or a
            module with `inputs`.
        text: the text, for models with a tokenizer.
        of: what is taken away: "heads", "layers", "tokens" or "edges".
        measure: "loss" (nats per token of the text), "logit" (of `token` after the text), "kl" (nats, from the
            probabilities of the unchanged model, mean over tokens), "cosine" (1 - cosine with the unchanged output,
            mean over tokens), or a function from the output of a batch to one number per entry. None is "loss" for
            models that write text, and "cosine" for others.
        token: the token whose logit is measured, as text or number; None is the likeliest.
        target: the target text of an encoder-decoder model.
        inputs: the arguments of the model, with a batch of 1, in the place of the text.
        tokenizer: the tokenizer of a loaded model.
        layer: the layers, by number, name or pattern; None is every layer.
        head: for tokens and edges, the heads in which they are cut; None is every head.

    Returns:
        The effects; print them for a ranked table.

    Raises:
        Refused: a model that `what_if` does not reach, one in training mode, batches of several entries, a measure that
            the output does not have, and more than 65,536 interventions.

    Examples:
        >>> import torch, regard as rg
        >>> layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True).eval()
        >>> rg.effects(layer, inputs=torch.randn(1, 8, 16)).values.shape
        (1, 2)
    """
    if of not in ("heads", "layers", "tokens", "edges"):
        raise refuse("effects", "of= is not known", f"of={of!r}", "heads, layers, tokens or edges", "leave it out")
    unused = {"head": head if of in ("heads", "layers") else None, "token": token if measure != "logit" else None}
    if passed := [name for name, value in unused.items() if value is not None]:
        expected = "head= for tokens and edges, token= for measure='logit'"
        raise refuse(
            "effects", f"{passed[0]}= is not used", f"of={of!r}, measure={measure!r}", expected, "leave it out"
        )
    subject = Subject.of(model, text, target, inputs, tokenizer)
    layers = Change(layer_selection(layer, "effects"), None, None, None, None, {})
    chosen = None if head is None else checked_heads(head)
    with torch.no_grad():
        blocks = Blocks(subject.model)
        with blocks.watching():
            counts, out = _heads(subject, layers)
        name, measured = measure_of(measure, out, subject, token)
        clean = float(measured(out)[0])
        found = _Interventions(of, list(counts), list(counts.values()), chosen, len(subject.axis), subject.writes)
        values = np.full(found.shape, np.nan)
        parts = found.parts(max(1, TOKENS // max(len(subject.axis), 1)))
        screen = Console(stderr=True)
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            task = progress.add_task(f"effects of {of}", total=sum(map(len, parts)))
            try:
                for part in parts:
                    first = found.layers[part[0][0] if of in ("heads", "layers") else 0]
                    with WhatIf(subject.model, found.changes(part)).changing(), blocks.reused(first, len(part)):
                        changed = measured(subject(len(part)))
                    values[tuple(zip(*part, strict=True))] = changed.double().cpu().numpy() - clean
                    progress.advance(task, len(part))
            except KeyboardInterrupt:  # what was computed stays
                screen.print(f"interrupted: {np.isnan(values).sum()} of {values.size} effects are not known")
    return Effects(of, name, values, clean, tuple(counts), subject.axis.tokens)


class _Interventions:
    """What is taken away, entry by entry: its index in the array of effects, and the changes of a batch of them."""

    def __init__(self, of: str, layers: list[str], counts: list[int], heads, tokens: int, causal: bool):
        self.of, self.layers, self.counts, self.heads, self.causal = of, layers, counts, heads, causal
        sizes = {"heads": (len(layers), max(counts)), "layers": (len(layers),), "tokens": (tokens,)}
        self.shape: tuple[int, ...] = sizes.get(of, (tokens, tokens))

    def entries(self) -> list[tuple[int, ...]]:
        """The index of each intervention. Refused: too many."""
        found: list[tuple[int, ...]]
        if self.of == "heads":
            found = [(at, number) for at, count in enumerate(self.counts) for number in range(count)]
        else:
            found = [at for at in np.ndindex(self.shape) if len(at) == 1 or not self.causal or at[1] <= at[0]]
        if len(found) > MOST:
            raise refuse(
                "effects",
                "too many interventions",
                f"{len(found):,} {self.of}",
                f"at most {MOST:,}",
                "shorten the text",
            )
        return found

    def parts(self, size: int) -> list[list[tuple[int, ...]]]:
        """The interventions in batches of this size; heads of one layer together, which share the blocks before it."""
        by = (lambda at: at[0]) if self.of == "heads" else (lambda at: 0)
        groups = [list(group) for _, group in itertools.groupby(self.entries(), by)]
        return [group[first : first + size] for group in groups for first in range(0, len(group), size)]

    def changes(self, part: list[tuple[int, ...]]) -> Callable[[str, int | None], Change | None]:
        """The change of each layer in a batch: entry b has intervention `part[b]`."""
        if self.of in ("tokens", "edges"):
            keys = table(np.array([at[-1] for at in part]), "keys")[batch]
            kept = key != keys
            rows = (
                query == key if self.of == "tokens" else query != table(np.array([at[0] for at in part]), "rows")[batch]
            )
            cut = Change(None, self.heads, kept | rows, None, None, {})
            return lambda name, _: cut if name in self.layers else None
        known: dict[str, Change] = {}
        for at, (name, count) in enumerate(zip(self.layers, self.counts, strict=True)):
            kept = np.ones((len(part), count), bool)
            for entry, one in enumerate(part):
                if one[0] == at:
                    kept[entry, one[1:] or slice(None)] = False
            if not kept.all():
                known[name] = Change(None, None, table(kept, "kept")[batch, the_head], None, None, {})
        return lambda name, _: known.get(name)


class _Heads(WhatIf):
    """Counts the heads of each layer."""

    counts: dict[str, int]

    def called(self, call: ObservedCall) -> None:
        super().called(call)
        if self._change(call.layer) is not None:
            self.counts[call.layer] = self._with_heads(call, None, call.q).shape[-3]


def _heads(subject: Subject, layers: Change) -> tuple[dict[str, int], Any]:
    """The number of heads of each layer by name, and the output of the unchanged model."""
    listing = _Heads(subject.model, lambda *layer: layers if layers.selects(*layer) else None)
    listing.counts = {}
    with listing.changing():
        out = subject(1)
    if not listing.counts:
        raise listing.unreached()
    return listing.counts, out


class Blocks:
    """The blocks of a model, the entries of its lists of modules, and their outputs for one text, in the order in which
    they ended; None of a block that was called twice.
    """

    def __init__(self, model: torch.nn.Module):
        self.modules = dict(model.named_modules())
        self.outputs: dict[str, Any] = {}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Inside the block, outputs are kept."""

        def kept(path: str):
            def keep(module, given, out) -> None:
                self.outputs[path] = None if path in self.outputs else out

            return keep

        listed = [(path, module) for path, module in self.modules.items() if path.rpartition(".")[2].isdigit()]
        handles = [module.register_forward_hook(kept(path)) for path, module in listed]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    @contextlib.contextmanager
    def reused(self, layer: str, copies: int) -> Iterator[None]:
        """Inside the block, blocks that ended before that of this layer return copies of what they have returned."""
        parts = layer.split(".")
        at = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
        siblings, own = ".".join(parts[:at]), ".".join(parts[: at + 1])
        ended = list(self.outputs)
        changed: dict[torch.nn.Module, Any] = {}
        for path in ended[: ended.index(own)] if own in ended else ():
            one = self.outputs[path]
            if path.rpartition(".")[0] == siblings and (out := _repeated(one, copies)) is not None:
                changed[self.modules[path]] = out
        before = {module: module.__dict__.get("forward") for module in changed}
        try:
            for module, out in changed.items():
                module.forward = lambda *_, out=out, **__: out
            yield
        finally:
            for module, forward in before.items():
                if forward is None:
                    module.__dict__.pop("forward", None)
                else:
                    module.forward = forward


def _repeated(out: Any, copies: int) -> Any:
    """Copies of the output of one entry; None of outputs that are not tensors, or tuples of them."""
    if isinstance(out, torch.Tensor):
        return out.expand(copies, *out.shape[1:]) if out.ndim and out.shape[0] == 1 else None
    if type(out) is not tuple:
        return None
    parts = [None if part is None else _repeated(part, copies) for part in out]
    return None if any(new is None and old is not None for new, old in zip(parts, out, strict=True)) else tuple(parts)
