"""Tokens of code per package: `python -m tests.project.size`. Comments, docstrings and layout are not counted."""

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path

from tests import ROOT

LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def tokens(path: Path) -> int:
    """How many tokens of code a file has.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
    ...     _ = file.write('def f(x):\\n    "A docstring."\\n    return x  # a comment'), file.flush()
    ...     tokens(Path(file.name))
    8
    """
    text = path.read_text(encoding="utf-8")
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, documented) and ast.get_docstring(node)]
    docstrings = {(node.body[0].lineno, node.body[0].col_offset) for node in nodes}
    found = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(1 for each in found if each.type not in LAYOUT and each.start not in docstrings)


def table(folder: Path) -> dict[str, tuple[int, int]]:
    """(tokens, files) of each package in a folder, the largest first; single files are together in `top`."""
    sizes: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).parts
        name = parts[0] if len(parts) > 1 else "top"
        sizes[name] += tokens(path)
        files[name] += 1
    return {name: (size, files[name]) for name, size in sizes.most_common()}


def main() -> None:
    for folder in (ROOT / "src" / "regard", ROOT / "tests"):
        found = table(folder)
        print(f"{folder.relative_to(ROOT)}")
        for name, (size, files) in found.items():
            print(f"  {name:14} {size:9,} tokens {files:5} files")
        size, files = map(sum, zip(*found.values(), strict=True))
        print(f"  {'sum':14} {size:9,} tokens {files:5} files")


if __name__ == "__main__":
    main()
