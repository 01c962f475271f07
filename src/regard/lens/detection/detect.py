"""`detect_heads`: runs a model on one text after another, and keeps what every head does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...common.errors import Reason, Refused, refuse
from ...common.module_settings import is_transformers_model
from ...common.optional import requires_extra
from ...common.text.keywords import known_keywords
from ...language.expr import text as text_of
from ..look import layer_selection
from ..open_model import OpenModel
from ..recording.keeper import RecordingOptions
from ..runs.detectors import checked
from ..runs.row_figures import ROWS
from ..runs.run import Run
from ..storage.reader import is_run
from .collected import Collected
from .given_texts import named
from .head_scores import KINDS, HeadScores

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
    own = checked(measures, known=ROWS)
    _check(what, texts)
    chosen = layer_selection(layers)
    options = RecordingOptions(chosen, values=False, limit=limit, measures=own, hashed=False)
    record = _recorder(what, options, tokenizer)
    found = Collected((*KINDS, *own))
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
    return found.scores({**KINDS, **{name: text_of(rule, SHOWN) for name, rule in own.items()}}, left_out)


def _check(what: Any, texts: Any) -> None:
    """Refuses a recorded run, and one text in the place of many."""
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


def _recorder(what: Any, options: RecordingOptions, tokenizer: Any) -> Callable[[str], Run]:
    """The model as a function from a text to its run. A model that has a name is opened once, before the first text."""
    if what is None or isinstance(what, str | Path):
        if tokenizer is not None:
            raise refuse(
                "detect_heads",
                "tokenizer= is not used",
                "tokenizer= with a folder or hub id",
                "the tokenizer in the model's folder",
                "leave it out, or load the model yourself",
            )
        model = OpenModel(what, options)
        model.open()
        return model
    from ...torch.hf.load_model import Opened  # loads torch
    from ..recording.entry import of_model

    if not is_transformers_model(what):
        raise refuse(
            "detect_heads",
            "not a model",
            type(what).__name__,
            "a folder, a hub id, or a model of transformers",
            "save a model of regard.models with regard.models.save, and pass the folder",
        )
    loaded = Opened(getattr(what, "name_or_path", "") or type(what).__name__, what, tokenizer, own=False)
    given = {"target": None, "image": None, "inputs": None, "tokenizer": None}
    return lambda text: of_model(loaded, options, text=text, generate=0, **given)


def _all_reasons(left_out: Sequence[tuple[str, Sequence[Reason]]]) -> list[Reason]:
    """Why no text could be recorded: every reason once, with the number of texts."""
    found = Counter(reason for _, reasons in left_out for reason in reasons)
    if not found:
        fix = "pass a list of texts, or of the paths of text files"
        return [Reason("no texts", "an empty list", "one text or more", fix)]
    return [replace(each, given=f"{each.given} ({n} texts)" if n > 1 else each.given) for each, n in found.items()]
