"""`regard look --compare`: the second run, which is a recorded one, another model on the same text, or another text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ..common.errors import refuse
from .text_argument import read_text

if TYPE_CHECKING:
    from ..lens import Run


class Other:
    """What a run is compared with. Refused: a folder without a recorded run or a model, or no text."""

    def __init__(self, word: str):
        from ..lens.storage.folder import open_run
        from ..lens.storage.reader import is_run
        from ..lens.trained import is_trained

        self.word = word
        self.run = open_run(Path(word)) if is_run(word) else None
        a_model = _has_file(word, "config.json") or is_trained(word)
        self.model = word if self.run is None and a_model else None
        if self.run is None and self.model is None and _has_file(word, "."):
            raise refuse(
                "look",
                "nothing to compare with",
                f"{word} is a folder without a recorded run or a model",
                "a recorded run, a model folder, or another text",
                "pass a folder that --save has written, a model folder, or a text in quotes",
            )
        self.text = read_text("look", word) if self.run is None and self.model is None else None

    def run_for(self, run: Run, limit: str) -> Run:
        """The run to compare `run` with: the recorded one, its text in the other model, or the other text in its model.

        Refused: a text if the model of `run` is not known, a model if `run` has no text.
        """
        from ..lens.look import look
        from ..lens.open_model import OpenModel

        if self.run is not None:
            return self.run
        if self.text is not None:
            record = OpenModel.of(run)
            if record is None:
                raise refuse(
                    "look",
                    "the model of this run is not known",
                    f"another text, --compare {self.text[:40]!r}, and a recorded run, which names no model",
                    "a model and a text, of which another text is recorded too",
                    "pass the model and the text instead of the recorded run",
                )
            return record(self.text)
        if not run.text:
            raise refuse(
                "look",
                "the run has no text for the other model",
                f"--compare {self.word}",
                "a run of a text",
                "record the other model with --save FOLDER, and compare with that folder",
            )
        made = run.facts.get("made")
        repeated = (
            {name: made[name] for name in ("generate", "layers") if name in made} if isinstance(made, dict) else {}
        )
        return look(self.model, run.text, limit=limit, **repeated)


def _has_file(word: str, name: str) -> bool:
    """Whether a word is a folder that contains this."""
    try:
        return bool(word.strip()) and Path(word).is_dir() and (Path(word) / name).exists()
    except (OSError, ValueError):  # too long for a path, or with a NUL character
        return False
