"""`effects`: how much each head, layer, token, edge or position matters: many interventions in one batch of forward
passes, which reuse the blocks before the first change (`Blocks`).
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress

from ...common.errors import refuse
from ...language.expr import batch, key, query, table
from ..recording.keeper import layer_selection
from ..runs.axis import Axis
from ..runs.effects import Effects
from .measures import Subject, measure_of
from .what_if import Change, WhatIf, checked_heads

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
    with torch.no_grad():
        own = Recorded(subject, layers)
        name, measured = measure_of(measure, own.out, subject, token)
        clean = float(measured(own.out)[0])
        several = source if isinstance(source, list) else [] if source is None else [source]
        runs = [Recorded(subject.with_input(each, target), layers) for each in several]
        rows = list(own.parts(of).values())[-1][0].shape[-2]
        axis = subject.axis if len(subject.axis) == rows else Axis.of(rows)  # of images, and of encoders
        taken = _values(of, own, runs, isinstance(source, list))
        changes = _Changes(of, own, taken, chosen, rows, subject.writes)
        values = np.full(changes.shape, np.nan)
        parts = changes.parts(max(1, TOKENS // max(rows, 1)))
        screen = Console(stderr=True)
        with Progress(console=screen, transient=True, disable=not screen.is_terminal) as progress:
            task = progress.add_task(f"effects of {of}", total=sum(map(len, parts)))
            try:
                for part in parts:
                    with WhatIf(subject.model, changes.of_layers(part)).changing(), changes.reused(part):
                        changed = measured(subject(len(part)))
                    values[tuple(zip(*part, strict=True))] = changed.double().cpu().numpy() - clean
                    progress.advance(task, len(part))
            except KeyboardInterrupt:  # what was computed stays
                screen.print(f"interrupted: {np.isnan(values).sum()} of {values.size} effects are not known")
    return Effects(of, name, values, clean, changes.names, axis.tokens)


Parts = dict[str, list[torch.Tensor]]


class Recorded:
    """One run of a model. out: its output · heads: the outputs (1, H, Q, E) of the chosen layers in each of their
    calls · blocks: what its blocks return.
    """

    def __init__(self, subject: Subject, layers: tuple[int | str, ...] | None):
        self.heads: Parts = {}
        self.blocks = Blocks(subject.model)
        chosen = Change(layers)

        def keep(name: str, out: torch.Tensor) -> torch.Tensor:
            if len(out) != 1:
                what, given = "a layer whose batch is not that of the model", f"{name}: {len(out)} entries of 1"
                raise refuse("effects", what, given, "one entry for a text", "choose other layers with layer=")
            self.heads.setdefault(name, []).append(out)
            return out

        def change_of(name: str, number: int | None) -> Change | None:
            return Change(values={"output": functools.partial(keep, name)}) if chosen.selects(name, number) else None

        running = WhatIf(subject.model, change_of)
        with running.changing(), self.blocks.watching():
            self.out = subject(1)
        if not self.heads:
            raise running.unreached()

    def parts(self, of: str) -> Parts:
        """What each layer, or each block, returns."""
        return self.blocks.streams(list(self.heads)) if of == "stream" else self.heads


def _values(of: str, own: Recorded, runs: list[Recorded], means: bool) -> dict[str, Any]:
    """What takes the place of each part: 0, that of another run, or its mean over the tokens of all runs."""
    if not runs:
        return dict.fromkeys(own.parts(of), 0)
    found: dict[str, Any] = {}
    for name, parts in own.parts(of).items():
        others: list[Any] = [run.parts(of).get(name, ()) for run in runs]
        if any(len(each) != 1 for each in (parts, *others)):
            what, fix = "a source for a layer that is called twice", "choose other layers with layer="
            raise refuse("effects", what, name, "one call", fix)
        found[name] = torch.cat([each[0] for each in others], -2)
        if means:
            found[name] = found[name].mean(-2, keepdim=True)
        elif found[name].shape != parts[0].shape:
            given = f"{found[name].shape[-2]} tokens in {name}"
            fix = "choose a source with as many tokens, or pass a list for its mean"
            raise refuse("effects", "a source of another size", given, f"{parts[0].shape[-2]} tokens", fix)
    return found


class _Changes:
    """What is taken away, entry by entry: its index in the array of effects, and the changes of a batch of them."""

    def __init__(self, of: str, own: Recorded, values: dict[str, Any], heads: Any, tokens: int, causal: bool):
        self.of, self.values, self.heads, self.causal = of, values, heads, causal
        self.blocks, self.names = own.blocks, tuple(values)
        self.counts = [parts[0].shape[1] for parts in own.heads.values()]
        sizes = {"heads": (len(values), max(self.counts)), "layers": (len(values),), "tokens": (tokens,)}
        self.shape: tuple[int, ...] = sizes.get(of, (len(values) if of == "stream" else tokens, tokens))

    def entries(self) -> list[tuple[int, ...]]:
        """The index of each intervention. Refused: too many."""
        found: list[tuple[int, ...]] = list(np.ndindex(self.shape))
        if self.of == "heads":
            found = [at for at in found if at[1] < self.counts[at[0]]]
        elif self.of == "edges" and self.causal:
            found = [at for at in found if at[1] <= at[0]]
        if len(found) > MOST:
            given, fix = f"{len(found):,} {self.of}", "shorten the text"
            raise refuse("effects", "too many interventions", given, f"at most {MOST:,}", fix)
        return found

    def parts(self, size: int) -> list[list[tuple[int, ...]]]:
        """The interventions in batches of this size; those of one layer together, which share the blocks before it."""
        by = (lambda at: at[0]) if self.of in ("heads", "stream") else (lambda at: 0)
        groups = [list(group) for _, group in itertools.groupby(self.entries(), by)]
        return [group[first : first + size] for group in groups for first in range(0, len(group), size)]

    def of_layers(self, part: list[tuple[int, ...]]) -> Callable[[str, int | None], Change | None]:
        """The change of each layer in a batch: entry b has intervention `part[b]`."""
        known: dict[str, Change] = {}
        if self.of in ("tokens", "edges"):
            keys = table(np.array([at[-1] for at in part]), "keys")[batch]
            rows = table(np.array([at[0] for at in part]), "rows")[batch]
            others = query == key if self.of == "tokens" else query != rows
            known = dict.fromkeys(self.names, Change(heads=self.heads, mask=(key != keys) | others))
        elif self.of != "stream":
            for at, (name, count) in enumerate(zip(self.names, self.counts, strict=True)):
                kept = torch.ones(len(part), count, 1, 1, dtype=torch.bool)
                for entry, one in enumerate(part):
                    if one[0] == at:
                        kept[entry, one[1:] or slice(None)] = False
                if not kept.all():
                    known[name] = Change(values={"output": functools.partial(_where, kept, self.values[name])})
        return lambda name, _: known.get(name)

    def reused(self, part: list[tuple[int, ...]]) -> contextlib.AbstractContextManager[None]:
        """Inside the block, blocks before the first change are not computed; in the stream, its tokens change."""
        name = self.names[0 if self.of in ("tokens", "edges") else part[0][0]]
        rows = [at[1] for at in part] if self.of == "stream" else None
        return self.blocks.reused(name, len(part), rows, self.values[name])


def _where(kept: torch.Tensor, value: Any, out: torch.Tensor) -> torch.Tensor:
    """The outputs of the heads that are kept, and the value in the place of the others."""
    return torch.where(kept.to(out.device), out, value)


@contextlib.contextmanager
def hooked(modules: Iterable[torch.nn.Module], keep: Callable[..., None]) -> Iterator[None]:
    """Inside the block, keep(module, args, named, out) is called after each of these modules in this thread."""
    thread = threading.get_ident()

    def hook(*call: Any) -> None:
        if threading.get_ident() == thread:
            keep(*call)

    handles = [module.register_forward_hook(hook, with_kwargs=True) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


class Blocks:
    """The blocks of a model, the entries of its lists of modules, and their outputs for one text, in the order in which
    they ended; None of a block that was called twice.
    """

    def __init__(self, model: torch.nn.Module):
        self.modules = dict(model.named_modules())
        self.outputs: dict[str, Any] = {}

    def watching(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block, outputs are kept."""
        paths = {module: path for path, module in self.modules.items() if path.rpartition(".")[2].isdigit()}

        def keep(module: torch.nn.Module, args: Any, named: Any, out: Any) -> None:
            path = paths[module]
            self.outputs[path] = None if path in self.outputs else out

        return hooked(paths, keep)

    def streams(self, layers: list[str]) -> Parts:
        """What the blocks of these layers return, in the list of modules in which the last one is. Refused: blocks that
        do not return a stream.
        """
        paths = dict.fromkeys(map(block_of, layers))
        siblings = list(paths)[-1].rpartition(".")[0]
        found: Parts = {}
        for path in (path for path in paths if path.rpartition(".")[0] == siblings):
            out = _repeated(self.outputs.get(path), 1)
            first = out[0] if isinstance(out, tuple) and out else out
            if not isinstance(first, torch.Tensor) or first.ndim != 3:
                given, expected = path or "layers without blocks", "a stream of one entry, from a block called once"
                raise refuse("effects", "the stream after a block is not known", given, expected, "use of='layers'")
            found[path] = [first]
        return found

    @contextlib.contextmanager
    def reused(self, layer: str, copies: int, rows: list[int] | None, value: Any) -> Iterator[None]:
        """Inside the block, blocks that ended before that of this layer return copies of what they have returned. With
        rows, that block, too, with the value in this row of each copy.
        """
        own = block_of(layer)
        ended = list(self.outputs)
        changed: dict[torch.nn.Module, Any] = {}
        for path in ended[: ended.index(own) + (rows is not None)] if own in ended else ():
            out = _repeated(self.outputs[path], copies)
            if path.rpartition(".")[0] == own.rpartition(".")[0] and out is not None:
                changed[self.modules[path]] = out if path != own else _patched(out, rows, value)
        before = {module: module.__dict__.get("forward") for module in changed}
        thread = threading.get_ident()

        def forward(out: Any, usual: Callable[..., Any], *args: Any, **named: Any) -> Any:
            return out if threading.get_ident() == thread else usual(*args, **named)

        try:
            for module, out in changed.items():
                module.forward = functools.partial(forward, out, module.forward)
            yield
        finally:
            for module, usual in before.items():
                if usual is None:
                    module.__dict__.pop("forward", None)
                else:
                    module.forward = usual


def block_of(layer: str) -> str:
    """The path of the block of a layer, up to its first number."""
    parts = layer.split(".")
    return ".".join(parts[: next((place + 1 for place, part in enumerate(parts) if part.isdigit()), 0)])


def _patched(out: Any, rows: Any, value: torch.Tensor) -> Any:
    """The output of a block, in which copy b has the value in its row `rows[b]`."""
    first = out if isinstance(out, torch.Tensor) else out[0]
    new, copies = first.clone(), torch.arange(len(rows))
    new[copies, rows] = value.expand_as(first[:1])[0, rows]
    return new if first is out else (new, *out[1:])


def _repeated(out: Any, copies: int) -> Any:
    """Copies of the output of one entry; None of outputs that are not tensors, or tuples of them."""
    if isinstance(out, torch.Tensor):
        return out.expand(copies, *out.shape[1:]) if out.ndim and out.shape[0] == 1 else None
    if type(out) is not tuple:
        return None
    parts = [None if part is None else _repeated(part, copies) for part in out]
    return None if any(new is None and old is not None for new, old in zip(parts, out, strict=True)) else tuple(parts)
