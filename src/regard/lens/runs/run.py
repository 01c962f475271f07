"""A recorded run: the axes, every attention call of one forward pass or generation, and their provenance."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from ...common.errors import Reason, Refused, refuse
from ...common.text.units import counted
from .axis import Axis
from .call import Call, Part
from .effects import Effects


@dataclass(frozen=True)
class Step:
    """One token that a model generated.

    Args:
        position: the position of the token on the axis.
        candidates: (token, probability) of the likeliest tokens, in descending order.

    Examples:
        >>> from regard.lens import Step
        >>> Step(4, (("cat", 0.9), ("dog", 0.1))).candidates[0]
        ('cat', 0.9)
    """

    position: int
    candidates: tuple[tuple[str, float], ...]


@dataclass(frozen=True, eq=False)
class Run:
    """Every attention call of one text, image, pair of texts, or pair of arrays through one model.

    Notebooks show a run as its interactive page. `regard.look` records runs, `Run.open` reads them.

    Args:
        model: the name of the model.
        text: the text that was recorded.
        axes: the axes by name.
        calls: the attention calls in the order in which they were made.
        steps: the generated tokens. The rows of all forward passes are joined, so that a call has the rows of the
            prompt and one row for each step.
        facts: plain JSON: library versions, the hash of the weights, the date, calls that were left out and why, and
            which numbers are exact, sampled or pooled.

    Raises:
        Refused: listing every problem: a run without calls, calls whose sizes do not fit their axes, and steps outside
            every axis.

    Examples:
        >>> import numpy as np, regard as rg
        >>> rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8)))
        <Run of arrays: 1 call; keys of 3>
    """

    model: str
    text: str
    axes: Mapping[str, Axis]
    calls: tuple[Call, ...]
    steps: tuple[Step, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    _repr_html_: ClassVar[Callable[[Run], str]]  # the HTML that notebooks show; regard.lens sets it

    def __post_init__(self) -> None:
        if reasons := list(self._faults()):
            raise Refused("Run", reasons)
        axes = self.axes
        calls = tuple(call.along(axes[call.queries], axes[call.keys]) for call in self.calls)
        object.__setattr__(self, "calls", calls)

    def _faults(self) -> Iterator[Reason]:
        if not self.calls:
            yield Reason("no attention calls", "calls=()", "at least one call", "record a model with attention")
        for call in self.calls:
            for name, size in ((call.queries, call.shape[1]), (call.keys, call.shape[2])):
                if name not in self.axes or len(self.axes[name]) != size:
                    yield Reason(
                        "a call that does not fit its axes",
                        f"{call.name}: {name} of {size}",
                        self._sizes() or "axes",
                        "pass an axis of this name and size",
                    )
        longest = max(map(len, self.axes.values()), default=0)
        if outside := [step.position for step in self.steps if not 0 <= step.position < longest]:
            yield Reason(
                "steps outside every axis",
                f"positions {', '.join(map(str, outside[:5]))[:80]}",
                f"0 to {longest - 1}",
                "count from the first token of the text",
            )

    def _sizes(self) -> str:
        return ", ".join(f"{name} of {len(axis)}" for name, axis in self.axes.items())

    def __repr__(self) -> str:
        steps = f"; {counted(len(self.steps), 'step')}" if self.steps else ""
        return f"<Run of {self.model}: {counted(len(self.calls), 'call')}; {self._sizes()}{steps}>"

    @property
    def effects(self) -> Effects | None:
        """What `look(…, effects=)` stored: how much the output depends on each head, layer, token or edge."""
        fact = self.facts.get("effects")
        return None if fact is None else Effects.of_fact(fact)

    def call(self, at: int | str) -> Call:
        """The call with this number or layer name.

        Args:
            at: the number of the call, also negative; or the name of its layer, of which the first call is returned.

        Returns:
            The call.

        Raises:
            Refused: an unknown number or name.

        Examples:
            >>> import numpy as np, regard as rg
            >>> run = rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8)))
            >>> run.call("attention") is run.call(0)
            True
        """
        if isinstance(at, str):
            found = next((call for call in self.calls if call.name == at), None)
            if found is not None:
                return found
        elif -len(self.calls) <= at < len(self.calls):
            return self.calls[at]
        raise refuse(
            "Run.call",
            "no such call",
            f"{at!r}",
            f"0 to {len(self.calls) - 1}, or a name such as {self.calls[0].name!r}",
            "list them: [call.name for call in run.calls]",
        )

    def changed(
        self,
        *,
        temperature: float = 1.0,
        scale: float | None = None,
        mask: Any = "recorded",
        calls: Collection[int] | None = None,
    ) -> Run:
        """The run with other rules: each call is computed again from its recorded q, k and v.

        p[h, i, j] = softmax_j(score(scale · q[h, i] · k[j]) / temperature) where the mask allows the pair

        Only attention is computed again: the inputs of the later layers stay as the model made them, so that this
        shows what a rule does to a row, not what the changed model would compute.

        Args:
            temperature: what the scores are divided by. Below 1, weights concentrate on the strongest keys; above 1
                they become more equal.
            scale: the factor of q·k; None is the recorded one.
            mask: a mask rule as for `attention`, None for no mask, or "recorded".
            calls: the numbers of the calls to change; None changes all.

        Returns:
            The run with the changed calls. Their `out` is Σ p v, and `notes["changed"]` says what was changed. Own
            measures are left out.

        Raises:
            Refused: listing every problem: a temperature that is not positive, a scale that is not finite, an unknown
                mask or call, and calls of which only the weights are known.

        Examples:
            >>> import numpy as np, regard as rg
            >>> q, k = np.array([[[1.0]]]), np.log([[[2.0], [8.0]]])
            >>> run = rg.look(q, k=k, scale=1.0)
            >>> run.calls[0].weights().round(3).tolist()
            [[[0.2, 0.8]]]
            >>> run.changed(temperature=0.5).calls[0].weights().round(3).tolist()
            [[[0.059, 0.941]]]
        """
        from .changed import changed

        new, said = changed(self.calls, self.axes, temperature, scale, mask, calls)
        if not said:
            return self
        facts = {name: value for name, value in self.facts.items() if name not in ("folder", "made")}
        return replace(self, calls=new, facts={**facts, "changed": said})

    def weights(self, rows: Part = None, keys: Part = None, heads: Part = None) -> np.ndarray:
        """The weights of all layers as one array: `Call.weights` of every call, one after another.

        Args:
            rows: query rows: a slice, an index or a word of the text, or several of these; None is all.
            keys: key positions, likewise.
            heads: heads, likewise.

        Returns:
            (layers, heads, rows, keys) float64; an index keeps its axis, of length 1.

        Raises:
            Refused: listing every problem: calls of different sizes or between different tokens, more than 100 million
                weights, positions outside the matrix, and words that occur not once.

        Examples:
            >>> import numpy as np, regard as rg
            >>> run = rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8)), mask=rg.causal(), tokens=["a", "cat", "sat"])
            >>> run.weights("cat", "a")
            array([[[[0.5]],
            <BLANKLINE>
                    [[0.5]]]])
        """
        return np.stack(_weights("Run.weights", self.calls, rows, keys, heads))

    def rollout(self) -> np.ndarray:
        """The weights of all layers multiplied, from the first tokens to the last rows: attention rollout.

        A_L ⋯ A_2 A_1 with A_l = (mean of p_l over the heads + identity) / 2

        Only weights count: what values, W_o, norms and feed-forward layers make of a token is left out, and half of
        every layer is the row itself, so that a large share need not matter. `regard.effects` with of="tokens"
        measures what a token causes.

        Returns:
            (tokens, tokens) float64: the share of each token (columns) in each row after the last layer.

        Raises:
            Refused: what `weights` refuses, calls between different tokens, and rows that are missing.

        Source:
            Abnar & Zuidema 2020, Quantifying Attention Flow in Transformers.

        Examples:
            >>> import numpy as np, regard as rg
            >>> rg.look(np.ones((2, 2, 8)), k=np.ones((2, 2, 8)), mask=rg.causal()).rollout()
            array([[1.  , 0.  ],
                   [0.25, 0.75]])
        """
        if other := next((call for call in self.calls if call.queries != call.keys), None):
            given, fix = f"{other.name}: {other.queries} → {other.keys}", "record the layers of one text with layers="
            raise refuse("Run.rollout", "calls between different tokens", given, "one axis", fix)
        result = identity = np.eye(self.calls[0].shape[1])
        for weights in _squares("Run.rollout", self.calls):
            result = (weights.mean(0) + identity) / 2 @ result
        return result

    def to_pandas(self) -> Any:
        """The weights as a pandas DataFrame, with a row for each pair that the masks allow.

        Returns:
            The frame, with the columns call, layer, head, query, key (positions), query_token, key_token and weight.

        Raises:
            Refused: without pandas, and more than 100 million weights.
        """
        try:
            pandas: Any = importlib.import_module("pandas")
        except ImportError:
            fix = "pip install pandas, or run.weights() for an array"
            raise refuse("to_pandas", "pandas is not installed", "no package pandas", "pandas", fix) from None
        parts = []
        for call, p in zip(self.calls, _weights("to_pandas", self.calls, alike=False), strict=True):
            head, i, j = at = np.nonzero(call.allowed())
            queries, keys = (np.array(self.axes[name].tokens, object) for name in (call.queries, call.keys))
            of = {"call": call.name, "layer": call.layer}
            known = {name: np.full(len(i), value, object) for name, value in of.items()}
            positions = {"head": head, "query": i, "key": j}
            parts.append({**known, **positions, "query_token": queries[i], "key_token": keys[j], "weight": p[at]})
        return pandas.DataFrame({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def to_npz(self, path: Any) -> None:
        """Writes the weights of all layers into a NumPy archive.

        Args:
            path: the file. It has `weights` (layers, heads, rows, keys) float32, `layers`, the names of the calls, and
                `queries` and `keys`, the tokens.

        Raises:
            Refused: what `weights` refuses.

        Examples:
            >>> import io, numpy as np, regard as rg
            >>> rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8))).to_npz(file := io.BytesIO())
            >>> np.load(io.BytesIO(file.getvalue()))["weights"].shape
            (1, 2, 3, 3)
        """
        weights, call = self.weights().astype(np.float32), self.calls[0]
        queries, keys = (np.array(self.axes[name].tokens) for name in (call.queries, call.keys))
        layers = np.array([each.name for each in self.calls])
        np.savez_compressed(path, weights=weights, layers=layers, queries=queries, keys=keys)

    def to_bertviz(self) -> dict[str, Any]:
        """The arguments of `bertviz.head_view` and `bertviz.model_view`: `head_view(**run.to_bertviz())`.

        Returns:
            `attention`, a list with a tensor (1, H, n, n) float32 for each layer, and `tokens`, a list of n texts. For
            an encoder–decoder: `encoder_attention`, `decoder_attention`, `cross_attention`, `encoder_tokens` and
            `decoder_tokens`.

        Raises:
            Refused: listing every problem: without torch, several kinds of tokens, layers of different sizes, calls
                without a row for every token, and more than 100 million weights.

        Source:
            BertViz 1.4.1, head_view.py.

        Examples:
            >>> import numpy as np, regard as rg
            >>> given = rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8))).to_bertviz()
            >>> given["tokens"], tuple(given["attention"][0].shape)
            (['0', '1', '2'], (1, 2, 3, 3))
        """
        try:
            import torch
        except ImportError:
            what, fix = "BertViz takes tensors of torch", "pip install torch, or call.weights() for arrays"
            raise refuse("to_bertviz", what, "no torch", "torch", fix) from None

        def layers(queries: str, keys: str) -> list[Any]:
            calls = [call for call in self.calls if call.keys == keys and call.aligned == (queries == keys)]
            return [torch.from_numpy(weights[None]) for weights in _squares("to_bertviz", calls)]

        crossed = {(call.queries, call.keys) for call in self.calls if not call.aligned}
        if not crossed and len({call.keys for call in self.calls}) == 1:
            name = self.calls[0].keys
            return {"attention": layers(name, name), "tokens": list(self.axes[name].tokens)}
        if len(crossed) != 1 or len(self.axes) != 2:
            shown = ", ".join(f"{queries} → {keys}" for queries, keys in sorted(crossed)) or ", ".join(self.axes)
            expected, fix = "one text, or the two of an encoder–decoder", "look at this run with regard"
            raise refuse("to_bertviz", "BertViz has no view of this run", shown, expected, fix)
        ((decoder, encoder),) = crossed
        found = {
            "encoder_attention": layers(encoder, encoder),
            "decoder_attention": layers(decoder, decoder),
            "cross_attention": layers(decoder, encoder),
        }
        tokens = {"encoder_tokens": list(self.axes[encoder].tokens), "decoder_tokens": list(self.axes[decoder].tokens)}
        return {name: value for name, value in found.items() if value} | tokens

    def to_circuitsvis(self, call: int | str = 0) -> dict[str, Any]:
        """The arguments of `circuitsvis.attention.attention_heads`: `attention_heads(**run.to_circuitsvis(3))`.

        Args:
            call: the number of the call, or the name of its layer.

        Returns:
            `attention` (H, n, n) float32, `tokens`, a list of n texts, `attention_head_names`, such as "3.0", and
            `mask_upper_tri`, whether no row attends to later tokens.

        Raises:
            Refused: an unknown call, a call between two texts, a call without a row for every token, and more than
                100 million weights.

        Source:
            CircuitsVis 1.43.3, attention.py.

        Examples:
            >>> import numpy as np, regard as rg
            >>> given = rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8)), mask=rg.causal()).to_circuitsvis()
            >>> given["attention"].shape, given["mask_upper_tri"], given["attention_head_names"]
            ((2, 3, 3), True, ['0.0', '0.1'])
        """
        chosen = self.call(call)
        if not chosen.aligned:
            given, expected = f"{chosen.name}: {chosen.queries} → {chosen.keys}", "a call within one text"
            fix = "choose another call: [(call.queries, call.keys) for call in run.calls] lists them"
            raise refuse("to_circuitsvis", "rows and keys are different tokens", given, expected, fix)
        (weights,) = _squares("to_circuitsvis", [chosen])
        layer = chosen.name if chosen.layer is None else chosen.layer
        return {
            "attention": weights,
            "tokens": list(self.axes[chosen.keys].tokens),
            "attention_head_names": [f"{layer}.{head}" for head in range(len(weights))],
            "mask_upper_tri": not np.triu(weights, 1).any(),
        }

    @classmethod
    def open(cls, folder: Path | str, *, verify: bool = False) -> Run:
        """Opens the run in a folder, with its arrays memory-mapped, in milliseconds.

        Args:
            folder: the folder of a recorded run.
            verify: whether to read all arrays and compare them with their SHA-256.

        Returns:
            The run. Its arrays are read-only.

        Raises:
            Refused: listing every problem: a folder without a complete run, damaged files, files of another format or
                a newer version, links, and arrays that do not fit each other.

        Examples:
            >>> import tempfile, numpy as np, regard as rg
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     saved = rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8))).save(folder)
            ...     rg.Run.open(folder, verify=True)
            <Run of arrays: 1 call; keys of 3>
        """
        from ..storage.reader import open_run

        return open_run(folder, verify=verify)

    def save(self, folder: Path | str, *, overwrite: bool = False, limit: int | str | None = None) -> Run:
        """Writes the run into a folder.

        With `overwrite`, the old run stays intact until the new one is complete.

        Args:
            folder: a new or an empty folder.
            overwrite: whether the folder may contain an older run, which is replaced.
            limit: the most bytes to write, as a number or as text such as "2GB"; None is the free space of the disk.

        Returns:
            The same run, with its arrays memory-mapped from the folder.

        Raises:
            Refused: before anything is written: a folder that contains other files, an older run without `overwrite`,
                and more bytes than `limit` or the disk allows.

        Examples:
            >>> import tempfile, numpy as np, regard as rg
            >>> run = rg.look(np.ones((2, 3, 8)), k=np.ones((2, 3, 8)))
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     run.save(folder)
            <Run of arrays: 1 call; keys of 3>
        """
        from ..storage.folder import save

        return save(self, folder, overwrite=overwrite, limit=limit)


MOST = 100_000_000  # weights that are computed at a time, or that viewers write into a page


def _weights(where: str, calls: Sequence[Call], *part: Part, alike: bool = True) -> list[np.ndarray]:
    """A part of the weights of each call. alike: whether the calls have to be of one size, between the same tokens."""
    count = sum(int(np.prod(call.shape)) for call in calls)
    reasons = []
    if count > MOST and not any(each is not None for each in part):
        fix = "choose rows, keys or heads; record fewer layers (layers=); or a shorter text"
        reasons.append(Reason("too many weights", f"{count:,} weights", f"at most {MOST:,}", fix))
    kinds = {f"{call.queries} → {call.keys} {call.shape}": call.name for call in calls}
    if alike and len(kinds) > 1:
        given = ", ".join(f"{kind} in {name}" for kind, name in kinds.items())
        fix = "record one kind of layer (layers=), or compute them call by call: run.calls[0].weights()"
        reasons.append(Reason("layers of different sizes", given[:300], "the same tokens and (H, Q, K)", fix))
    if reasons:
        raise Refused(where, reasons)
    return [call.weights(*part) for call in calls]


def _squares(where: str, calls: Sequence[Call]) -> list[np.ndarray]:
    """The weights of each call, (H, K, K) float32. Refused: calls without a row for every key."""
    if partial := [call for call in calls if call.aligned and call.shape[1] != call.shape[2]]:
        given = f"{partial[0].name}: {partial[0].shape[1]} rows over {partial[0].shape[2]} keys"
        expected, fix = "a row for every token", "record the whole text, without a cache"
        raise refuse(where, "rows are missing", given, expected, fix)
    return [weights.astype(np.float32) for weights in _weights(where, calls)]
