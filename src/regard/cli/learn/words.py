"""What the words after `regard learn` mean: a folder, a chapter, a file, a question."""

from __future__ import annotations

from pathlib import Path

ASK = "ask"
# What has no use for a learner's folder.
PLACELESS = ("--claim", "--read", "--notebooks", "--scripts", "--site", "--slides")
WHOLE = ("ask", "--check FILE", "--list", "--reset", "--grade", *PLACELESS)  # what has no use for a chapter's number


class Said:
    """What the words of the command mean."""

    def __init__(self) -> None:
        from ...learn.folder import USUAL

        self.folder = USUAL
        self.chapter: int | None = None
        self.file: Path | None = None
        self.question: str | None = None


def parsed(words: list[str], check: bool, chosen: list[str]) -> Said:
    """Folder, chapter, file or question. Raises `Refused` for anything else."""
    from ...common.errors import Reason, Refused

    said, reasons, folders = Said(), [], []
    if len(chosen) > 1:
        given, expected = " ".join(chosen), "one of them"
        reasons.append(Reason("two options that do different things", given, expected, "run one"))
    if ASK in words[:2] and not chosen:
        words, question = words[: words.index(ASK)], words[words.index(ASK) + 1 :]
        said.question = " ".join(question)
        if not said.question.strip():
            fix = 'regard learn ask "Why is the scale a root?"'
            reasons.append(Reason("no question", "regard learn ask", "a question", fix))
    for word in words:
        if word.isdecimal() and said.chapter is None:
            said.chapter = int(word)
        elif check and word.endswith(".py"):
            said.file = Path(word)
        else:
            folders.append(word)
    if len(folders) > 1:
        given, expected = " ".join(folders), "one folder"
        fix = 'a question of your own: regard learn ask "…"'
        reasons.append(Reason("more than one folder", given, expected, fix))
    option = "ask" if said.question is not None else "--check FILE" if said.file is not None else "".join(chosen[:1])
    if said.chapter is not None and option in WHOLE:
        given, expected = f"{option} with {said.chapter}", f"{option} without the number of a chapter"
        reasons.append(Reason("the number of a chapter has no use", given, expected, "omit it"))
    if folders and option in PLACELESS:
        given, expected = f"{option} with {folders[0]}", f"{option} without a learner's folder"
        reasons.append(Reason("a folder has no use", given, expected, "omit it"))
    if reasons:
        raise Refused("learn", reasons)
    here = Path("progress.json").is_file() and any(Path().glob("[0-9][0-9]_*.py"))
    if folders:
        said.folder = Path(folders[0])
    elif said.file is not None:
        said.folder = said.file.parent
    elif here:
        said.folder = Path()
    return said


def ranges(text: str) -> list[tuple[int, int]]:
    """The first and the last number of each range of "3,5-7". Raises `Refused` for anything else."""
    from ...common.errors import refuse

    found = []
    for each in text.split(","):
        first, _, last = (word.strip() for word in each.partition("-"))
        if not first.isdecimal() or not (last.isdecimal() or not last) or int(last or first) < int(first):
            expected, fix = "numbers of chapters and ranges, such as 3,5-7", "regard learn --list shows the numbers"
            raise refuse("learn", "the chapters cannot be read", f"--only {text}", expected, fix)
        found.append((int(first), int(last or first)))
    return found
