"""What users and contributors read is plain technical English: words of a private vocabulary have not come back.

`python -m tests.project.test_english` lists every line that holds one, with what to write instead.
"""

import re
from pathlib import Path

from tests import ROOT

# What was once written, and what an engineer of the field says.
INSTEAD = {
    r"mend(s|ed|ing)?": "fix",
    r"told": "given, passed, specified",
    r"wants? (a )?gradients?": "requires gradients",
    r"way back": "backward pass",
    r"(is|are|was|were) no(?! longer| more| less|-|t)\b(?= \w)": "is not a, there is no",
    r"whoever|nobody|somebody": "the caller, a user, no one",
    r"for ever": "indefinitely",
    r"weather|sisters?|by a hair|in health|hung up|strangers?|firm(er|est)": "plain words",
    r"lies?|lying": "is, is on, is in",
    r"(?<!-)stands?(?!-)": "is, is in, represents",
    r"falls? out": "is dropped",
    r"ask(s|ed|ing)? for|asked": "requested",
    r"look(s|ed|ing)? (on|for|in|into)": "inspect, observe, search for",
    r"nothing to (act on|look at)": "has no effect without …; is empty",
    r"reasons at once": "lists every problem",
    r"letters?(?!-)": "characters",
    r"pictures?": "image (input), figure (plot)",
    r"(is|are|was|were) refused": "raises Refused, is not supported",
    r"once more": "again",
    r"but for": "except for",
    r"given back": "returned, released",
    r"the bits of|has the bits": "bit-identical to",
    r"held by": "tested by, owned by",
    r"one'?s own": "your own",
    r"half of (a|the) (forward|input)": "pass both, or neither",
    r"two sides|has a middle|a seed is|no way back": "say which values are allowed",
    r"of its kind|in its turn|on the way": "plain words",
    r"to be had": "available",
    r"visitors?|lineage|suspects?|verdicts?|doors?|desk": "the field's term",
}
FORBIDDEN = re.compile(rf"\b(?:{'|'.join(f'(?P<w{number}>{words})' for number, words in enumerate(INSTEAD))})\b", re.I)
FOLDERS = {
    "src/regard": ("py", "js", "html", "css"),
    "docs": ("md", "py"),
    "examples": ("py",),
    ".github": ("md", "yml"),
}
FILES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "bench/README.md", "Makefile", "mkdocs.yml")

# Lines that must hold such a word: old names that still work, public parameters, fields of stored files, CSS.
PICTURE = r"\bpicture\b"  # `picture=` and `--picture` of look, and the field of an axis in run.json
ALLOWED = {
    "CHANGELOG.md": r"to mend|\.mend|`asked",
    "mkdocs.yml": r"material/weather",
    "src/regard/cli/look.py": PICTURE,
    "src/regard/lens/look.py": PICTURE,
    "src/regard/lens/recording/inputs.py": PICTURE,
    "src/regard/lens/runs/axis.py": PICTURE,
    "src/regard/lens/storage/manifest.py": PICTURE,
    "src/regard/lens/viewer/queries.py": PICTURE,
}


def texts() -> list[Path]:
    """Every file that a user or a contributor reads, tests apart."""
    found = [path for folder, ends in FOLDERS.items() for end in ends for path in (ROOT / folder).rglob(f"*.{end}")]
    return [ROOT / name for name in FILES] + sorted(found)


def offences(path: Path) -> list[str]:
    """The lines of a file that hold a forbidden word, each with what to write instead."""
    name = str(path.relative_to(ROOT))
    allowed = re.compile(ALLOWED.get(name, r"(?!)"), re.I)
    lines = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        for found in FORBIDDEN.finditer(line):
            if not allowed.search(line):
                instead = list(INSTEAD.values())[int(next(key for key in found.groupdict() if found[key])[1:])]
                lines.append(f"{name}:{number}: {found[0]!r} → {instead}: {line.strip()[:100]}")
    return lines


def test_no_private_vocabulary():
    """Messages, pages, docstrings, names and documents hold no forbidden word."""
    found = [line for path in texts() for line in offences(path)]

    assert not found, "\n".join([f"{len(found)} lines:", *found[:40]])


def test_the_scan_finds_what_was_there(tmp_path, monkeypatch):
    """The check can fail: phrases of version 0.1 are found."""
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    old = ["to mend: pass a mask", "q wants gradients", "q is no tensor", "k lies on another device", "it is told"]
    (tmp_path / "old.md").write_text("\n".join(old))

    assert len(offences(tmp_path / "old.md")) == len(old)


if __name__ == "__main__":
    print(*(line for path in texts() for line in offences(path)), sep="\n")
