"""Head detectors over many texts: what every head does on average, and in which texts it does it most."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..common.errors import Reason, Refused, refuse
from ..common.module_settings import is_transformers_model
from ..common.optional import requires_extra
from ..common.text.keywords import known_keywords
from ..common.text.units import counted
from ..language.expr import text as text_of
from .open_model import OpenModel
from .recording.keeper import RecordingOptions, layer_selection
from .runs.detectors import checked
from .runs.run import Run
from .storage.reader import is_run

# The detectors by the names of their figures, and the keys that they measure the weight on.
KINDS = {
    "previous": "the previous token",
    "duplicate": "the same token before",
    "induction": "what followed it before",
    "first": "the first key",
    "itself": "the token itself",
}


@dataclass(frozen=True)
class HeadScore:
    """How much weight one head has on the keys of one detector, over the texts.

    Args:
        detector: the name of the detector.
        call: the name of the layer in the model.
        layer: the number of the layer, or of the call if layers have no numbers.
        head: the number of the head.
        mean: the mean over the texts, 0 … 1; NaN if no text has such keys.
        deviation: the standard deviation over the texts; NaN for fewer than two texts.
        texts: the number of texts that have such keys.
        most: (text, value) of the texts with the largest values, in descending order, at most three.

    Examples:
        >>> from regard.lens import HeadScore
        >>> HeadScore("previous", "h.2.attn", 2, 7, 0.98, 0.01, 2, (("a.txt", 0.99), ("b.txt", 0.97))).name
        '2.7'
    """

    detector: str
    call: str
    layer: int
    head: int
    mean: float
    deviation: float
    texts: int
    most: tuple[tuple[str, float], ...]

    @property
    def name(self) -> str:
        """The layer and the head, such as "2.7"."""
        return f"{self.layer}.{self.head}"

    def to_json(self) -> dict[str, Any]:
        """The score as plain JSON, without its place; NaN becomes None."""
        return {
            "mean": _number(self.mean),
            "deviation": _number(self.deviation),
            "texts": self.texts,
            "most": [{"text": text, "value": value} for text, value in self.most],
        }


@dataclass(frozen=True, eq=False)
class HeadScores:
    """What every head of a model does over many texts. `regard.lens.detect_heads` returns it.

    Args:
        model: the name of the model.
        texts: the number of texts that the model was run on.
        layers: the names of the attention calls, in order.
        detectors: the detectors by name: the keys that each measures the weight on.
        scores: the scores of each detector: of every head, by layer and head.
        left_out: (text, reason) of the texts that could not be read or recorded.

    Examples:
        >>> from regard.lens import HeadScore, HeadScores
        >>> score = HeadScore("first", "attention", 0, 0, 0.5, 0.1, 2, (("a.txt", 0.6),))
        >>> found = HeadScores("toy", 2, ("attention",), {"first": "the first key"}, {"first": (score,)}, ())
        >>> found.best("first")[0].mean
        0.5
    """

    model: str
    texts: int
    layers: tuple[str, ...]
    detectors: Mapping[str, str]
    scores: Mapping[str, tuple[HeadScore, ...]]
    left_out: tuple[tuple[str, str], ...]

    def __repr__(self) -> str:
        heads = counted(len(next(iter(self.scores.values()), ())), "head")
        return f"<HeadScores of {self.model}: {heads}, {counted(self.texts, 'text')}, {', '.join(self.detectors)}>"

    def best(self, detector: str, count: int = 3) -> tuple[HeadScore, ...]:
        """The heads with the largest mean.

        Args:
            detector: the name of the detector.
            count: the most heads.

        Returns:
            Their scores, in descending order; heads without a value are left out.

        Raises:
            Refused: an unknown detector.
        """
        if detector not in self.scores:
            raise refuse(
                "HeadScores.best",
                "no such detector",
                repr(detector),
                f"one of {', '.join(self.scores)}",
                "choose among these, or pass measures= to detect_heads",
            )
        known = [score for score in self.scores[detector] if score.texts]
        return tuple(sorted(known, key=lambda score: -score.mean)[:count])

    def to_json(self) -> dict[str, Any]:
        """The scores as plain JSON: what `regard look --json` prints.

        Returns:
            "model", "texts", "detectors", "heads" (one for each head, with its scores by detector), "left_out".
        """
        rows = zip(*self.scores.values(), strict=True)
        heads = [
            {
                "call": row[0].call,
                "layer": row[0].layer,
                "head": row[0].head,
                "scores": {score.detector: score.to_json() for score in row},
            }
            for row in rows
        ]
        return {
            "model": self.model,
            "texts": self.texts,
            "detectors": dict(self.detectors),
            "heads": heads,
            "left_out": [{"text": text, "reason": reason} for text, reason in self.left_out],
        }


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


NAMED = 60  # characters of a text that are its name


def named(texts: Iterable[Any]) -> Iterator[tuple[str, Callable[[], str]]]:
    """The name of each text, and how to get it, so that files are read one at a time."""
    for number, entry in enumerate(texts):
        if isinstance(entry, Path):
            yield str(entry), partial(read_file, entry)
        elif isinstance(entry, str):
            name = " ".join(entry.split())
            yield name if len(name) <= NAMED else f"{name[:NAMED]}…", partial(str, entry)
        elif isinstance(entry, tuple) and len(entry) == 2 and all(isinstance(part, str) for part in entry):
            yield entry[0], partial(str, entry[1])
        else:
            yield f"text {number}", partial(_not_a_text, entry)


def _not_a_text(entry: Any) -> str:
    expected = "a text, a path, or a pair of a name and a text"
    raise refuse("detect_heads", "not a text", f"{entry!r:.60}", expected, "pass the text itself")


def read_file(path: Path) -> str:
    """The text of a UTF-8 file. Refused: a file that cannot be read, is not UTF-8, or is empty."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        what, given, fix = "the file cannot be read", error.strerror or str(error), "check the path and its permissions"
    except UnicodeDecodeError as error:
        what, given, fix = "the file is not UTF-8", f"byte {error.start}", "convert it to UTF-8, for example with iconv"
    else:
        if text.strip():
            return text
        what, given, fix = "the file is empty", "no words", "leave it out"
    raise refuse("detect_heads", what, f"{path}: {given}", "a text file", fix)


LARGEST = 3  # how many of the largest values are kept


class Running:
    """The statistics of every element of arrays (H,) that come one after another, each with a name. NaN does not count.

    mean ← mean + (x − mean) / n,  squares ← squares + (x − old mean)(x − new mean)

    Source: Welford 1962.

    >>> found = Running(1)
    >>> for name, value in (("a", 1.0), ("b", 3.0), ("c", np.nan)):
    ...     found.add(name, np.array([value]))
    >>> found.mean.tolist(), found.deviation.round(3).tolist(), found.count.tolist(), found.most[0][0]
    ([2.0], [1.414], [2], (3.0, 'b'))
    """

    def __init__(self, size: int):
        self.count = np.zeros(size, np.int64)
        self._mean, self._squares = np.zeros(size), np.zeros(size)
        self.most: list[list[tuple[float, str]]] = [[] for _ in range(size)]  # in descending order

    def add(self, name: str, values: np.ndarray) -> None:
        """Adds the value of every element."""
        known = np.isfinite(values)
        self.count += known
        away = np.where(known, values - self._mean, 0)
        self._mean += away / np.maximum(self.count, 1)
        self._squares += away * np.where(known, values - self._mean, 0)
        for at in np.flatnonzero(known).tolist():
            best = self.most[at]
            if len(best) < LARGEST or values[at] > best[-1][0]:
                best.append((float(values[at]), name))
                best.sort(key=lambda pair: -pair[0])  # stable: of equal values, the first stays first
                del best[LARGEST:]

    @property
    def mean(self) -> np.ndarray:
        """NaN where every value is NaN."""
        return np.where(self.count > 0, self._mean, np.nan)

    @property
    def deviation(self) -> np.ndarray:
        """The standard deviation, √(Σ (x − mean)² / (n − 1)); NaN where there are fewer than two values."""
        return np.where(self.count > 1, np.sqrt(self._squares / np.maximum(self.count - 1, 1)), np.nan)


LeftOut: TypeAlias = Sequence[tuple[str, Sequence[Reason]]]


class Collected:
    """The figures of the heads of all texts so far.

    Calls of two texts are the same if they have the same name, and the same number among the calls of that name.
    """

    def __init__(self, detectors: Mapping[str, str]):
        self.detectors = detectors
        self.texts, self.model = 0, ""
        self.calls: dict[tuple[str, int], tuple[int, dict[str, Running]]] = {}

    def add(self, name: str, run: Run) -> None:
        """Adds the figures of one text."""
        self.texts, self.model = self.texts + 1, run.model
        seen: Counter[str] = Counter()
        for number, call in enumerate(run.calls):
            key = call.name, seen[call.name]
            seen[call.name] += 1
            layer = number if call.layer is None else call.layer
            _, held = self.calls.setdefault(key, (layer, {each: Running(call.shape[0]) for each in self.detectors}))
            for each in self.detectors:
                if each in call.figures:
                    held[each].add(name, call.figures[each])

    def scores(self, left_out: LeftOut = ()) -> HeadScores:
        """The result."""
        said = ((name, "; ".join(f"{each.what}: {each.given}" for each in reasons)) for name, reasons in left_out)
        layers = tuple(name for name, _ in self.calls)
        found = {each: tuple(self._of(each)) for each in self.detectors}
        return HeadScores(self.model, self.texts, layers, self.detectors, found, tuple(said))

    def _of(self, detector: str) -> Iterator[HeadScore]:
        for (call, _), (layer, held) in self.calls.items():
            found = held[detector]
            for head, (mean, deviation) in enumerate(zip(found.mean.tolist(), found.deviation.tolist(), strict=True)):
                most = tuple((name, value) for value, name in found.most[head])
                yield HeadScore(detector, call, layer, head, mean, deviation, int(found.count[head]), most)


SHOWN = 200  # characters of an own measure in the result


@requires_extra("detect_heads", "look")
@known_keywords
def detect_heads(
    what: Any,
    texts: Iterable[str | Path | tuple[str, str]],
    *,
    measures: Mapping[str, Any] | None = None,
    layers: Sequence[int | str] | int | str | None = None,
    tokenizer: Any = None,
    limit: int | str = "2GB",
) -> HeadScores:
    """Measures what every head of a model does over many texts, such as attending to the previous token.

    score[h] = mean over the texts of (mean over the rows i of Σ p[h, i, j] over the keys j of the detector)

    The detectors are "previous", "duplicate", "induction", "first" and "itself", and your own measures. Rows without a
    key of a detector do not count, nor do texts without such rows. One text is recorded at a time, so that the memory
    does not grow with their number. A text that cannot be read or recorded is left out, and listed with the reason.

    Args:
        what: a model, as for `look`: a folder, a hub id, a loaded model, a folder of `regard train` or
            `regard classify`, or None for the default model (MiniLM).
        texts: the texts; for each its text, the path of a UTF-8 file, or a pair of a name and a text.
        measures: own sets of keys by name, as for `look`.
        layers: which layers to measure, by number or by name with wildcards. None measures all.
        tokenizer: the tokenizer of a loaded model.
        limit: the most bytes that the recording of one text may have.

    Returns:
        For every head and detector the mean and the standard deviation over the texts, and the texts with the largest
        values.

    Raises:
        Refused: a recorded run or one text in the place of many, a model that cannot be opened, invalid measures, and
            texts of which none could be recorded, with the reasons of all.

    Source:
        Elhage et al. 2021; Olsson et al. 2022 (induction heads).

    Examples:
        >>> import tempfile
        >>> from regard.lens import detect_heads
        >>> from regard.models import Config, LanguageModel, save
        >>> from regard.models.data.vocabulary import Bytes
        >>> model = LanguageModel(Config(vocabulary=257, d_model=16, layers=2, heads=2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = save(folder, model, vocabulary=Bytes())
        ...     found = detect_heads(folder, ["abcabc", "abab"])
        >>> found.texts, len(found.scores["induction"])
        (2, 4)
    """
    own = checked(measures)
    _check(what, texts)
    chosen = layer_selection(layers)
    options = RecordingOptions(chosen, values=False, limit=limit, measures=own, hashed=False)
    record = OpenModel(what, options, tokenizer=tokenizer, where="detect_heads")
    record.open()  # before the first text
    found = Collected(KINDS | {name: text_of(rule, SHOWN) for name, rule in own.items()})
    left_out: list[tuple[str, tuple[Reason, ...]]] = []
    for name, read in named(texts):
        try:
            run = record(read())
        except Refused as refused:
            left_out.append((name, refused.reasons))
        else:
            found.add(name, run)
    if not found.texts:
        raise Refused("detect_heads", _all_reasons(left_out))
    return found.scores(left_out)


def _check(what: Any, texts: Any) -> None:
    """Refuses a recorded run and what else is not a model, and one text in the place of many."""
    reasons = []
    if isinstance(what, str | Path) and is_run(what):
        reasons.append(
            Reason(
                "a recorded run has one text",
                f"the recorded run {what}",
                "a model, to run on every text",
                "pass the model; for the run, see the figures of its calls",
            )
        )
    if not (what is None or isinstance(what, str | Path) or is_transformers_model(what)):
        reasons.append(
            Reason(
                "not a model",
                type(what).__name__,
                "a folder, a hub id, or a model of transformers",
                "save a model of regard.models with regard.models.save, and pass the folder",
            )
        )
    if isinstance(texts, str | bytes | Path | Mapping) or not isinstance(texts, Iterable):
        reasons.append(
            Reason(
                "not several texts",
                f"{type(texts).__name__} {str(texts)[:40]!r}",
                "a list of texts or of paths",
                "pass a list, such as [text], or sorted(Path(folder).glob('*.txt'))",
            )
        )
    if reasons:
        raise Refused("detect_heads", reasons)


def _all_reasons(left_out: Sequence[tuple[str, Sequence[Reason]]]) -> list[Reason]:
    """Why no text could be recorded: every reason once, with the number of texts."""
    found = Counter(reason for _, reasons in left_out for reason in reasons)
    if not found:
        fix = "pass a list of texts, or of the paths of text files"
        return [Reason("no texts", "an empty list", "one text or more", fix)]
    return [replace(each, given=f"{each.given} ({n} texts)" if n > 1 else each.given) for each, n in found.items()]
