"""Tables of texts and labels: reads CSV, TSV and JSON lines, detects columns, and reports errors with line numbers."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import Reason, refuse, refuse_all

KINDS = (".csv", ".tsv", ".jsonl")
TEXTS = ("text", "sentence", "review", "message", "content", "comment", "document", "question", "body", "title")
LABELS = ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "rating", "y")
LONGEST = 10_000_000  # characters of a field: the csv module's limit is 131,072
LISTED = 5  # maximum number of lines listed per error

Row = tuple[int, dict[str, str]]  # its first line, and its fields


@dataclass(frozen=True)
class Table:
    """Texts and labels read from a table.

    Args:
        name: the path of the table.
        texts: the texts.
        labels: the label of each text. None: the table was read without labels.
        lines: the line number of each text.
        columns: the names of the text column and the label column.

    Examples:
        >>> Table("animals.csv", ["It purrs."], ["cat"], [2], ("text", "label")).labels
        ['cat']
    """

    name: str
    texts: list[str]
    labels: list[str] | None
    lines: list[int]
    columns: tuple[str, str | None]


def read(path: Path, text: str | None = None, label: str | None = None, *, labelled: bool = True) -> Table:
    """Reads a table of texts and labels.

    Columns are identified by name, or by number without a header. By default the text column is the one with a
    common name ("text", "review" …), else the one with the longest texts; the label column is the one with a common
    name ("label", "class" …), else the one with the fewest distinct values.

    Args:
        path: a CSV, TSV or JSON lines file.
        text: the column of the texts. None: detect it.
        label: the column of the labels. None: detect it.
        labelled: whether to read labels.

    Returns:
        The table.

    Raises:
        Refused: a file that cannot be read, rows that are invalid, or columns that do not exist.

    Examples:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = Path(folder) / "animals.csv"
        ...     _ = file.write_text('text,label\\n"It barks, often.",dog\\nIt purrs.,cat\\n')
        ...     read(file).texts
        ['It barks, often.', 'It purrs.']
    """
    raw = _content(path)
    rows = list(_objects(raw, path) if path.suffix == ".jsonl" else _records(raw, path, text, label))
    if not rows:
        raise refuse("classify", "the table is empty", f"{path} has no rows", "one row per text", "check the file")
    names = list(dict.fromkeys(name for _, fields in rows for name in fields))
    chosen = _choose(rows, names, text=text, label=label, labelled=labelled, path=path)
    reasons: list[Reason] = []
    for what, name in (("text", chosen[0]), ("label", chosen[1])):
        empty = [line for line, fields in rows if name is not None and not fields.get(name, "").strip()]
        if empty:
            reasons.append(
                Reason(
                    f"rows without a {what}",
                    f"column {name!r} of {path} is empty in {_listed(empty)}",
                    f"a {what} in every row",
                    "fill in these rows, or remove them",
                )
            )
    refuse_all("classify", reasons)
    labels = [fields[chosen[1]].strip() for _, fields in rows] if chosen[1] is not None else None
    return Table(str(path), [fields[chosen[0]] for _, fields in rows], labels, [line for line, _ in rows], chosen)


def _content(path: Path) -> str:
    if path.suffix not in KINDS:
        raise refuse(
            "classify",
            "unknown file type",
            str(path),
            f"a file with the extension {', '.join(KINDS)}",
            "convert the file, or correct its extension",
        )
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise refuse(
            "classify", "the table cannot be read", f"{path}: {error.strerror}", "a file", "check the path"
        ) from error
    if b"\0" in raw:
        raise refuse(
            "classify",
            "not a text file",
            f"{path} contains zero bytes",
            "UTF-8 text",
            "export the table as CSV in UTF-8",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise refuse(
            "classify",
            "the table is not UTF-8",
            f"{path}, line {line}",
            "UTF-8",
            "convert it to UTF-8, for example with iconv",
        ) from error


def _objects(raw: str, path: Path) -> Iterator[Row]:
    """The rows of a JSON lines file: one object per line. Numbers and booleans are converted to text."""
    invalid = []
    for number, line in enumerate(raw.split("\n"), 1):
        if not line.strip():
            continue
        try:
            content = json.loads(line)
        except ValueError as error:
            invalid.append((number, str(error)))
            continue
        if not isinstance(content, dict):
            invalid.append((number, f"a {type(content).__name__}"))
            continue
        yield (
            number,
            {
                str(name): value if isinstance(value, str) else json.dumps(value)
                for name, value in content.items()
                if value is not None
            },
        )
    if invalid:
        more = f" (and {len(invalid) - 1} more lines)" if len(invalid) > 1 else ""
        raise refuse(
            "classify",
            "a line is not a JSON object",
            f"{path}, line {invalid[0][0]}: {invalid[0][1]}{more}",
            "a JSON object on every line",
            "correct the line",
        )


def _records(raw: str, path: Path, text: str | None, label: str | None) -> Iterator[Row]:
    """The rows of a CSV file; the separator is detected. Without a header, columns are named 1, 2, …"""
    records = _parsed(raw, path)
    if not records:
        return
    width = len(records[0][1])
    uneven = [(line, fields) for line, fields in records if len(fields) != width]
    if uneven:
        line, fields = uneven[0]
        raise refuse(
            "classify",
            "rows of different widths",
            f"{path}: {len(fields)} fields in line {line}, {width} in line {records[0][0]}"
            + (f" (and {len(uneven) - 1} more rows)" if len(uneven) > 1 else ""),
            "the same number of fields in every row",
            "quote texts that contain the separator",
        )
    first = [name.strip() for name in records[0][1]]
    named = _is_header(first, [fields for _, fields in records[1:]], text, label)
    if named and len(set(first)) < width:
        twice = [name for name, count in Counter(first).items() if count > 1]
        raise refuse(
            "classify",
            "duplicate column names",
            f"{path}: {', '.join(map(repr, twice))}",
            "distinct names",
            "rename the columns in the first line",
        )
    names = first if named else [str(number) for number in range(1, width + 1)]
    for line, fields in records[1:] if named else records:
        yield line, dict(zip(names, fields))


def _parsed(raw: str, path: Path) -> list[tuple[int, list[str]]]:
    """The first line and the fields of every row that is not blank."""
    if path.suffix == ".tsv":
        separator = "\t"
    else:
        try:
            separator = csv.Sniffer().sniff(raw.split("\n", 1)[0], ",;\t|").delimiter
        except csv.Error:  # one column, or a separator that cannot be detected
            separator = ","
    limit = csv.field_size_limit(LONGEST)
    reader = csv.reader(io.StringIO(raw, newline=""), delimiter=separator, strict=True)
    records, begins = [], 1
    try:
        for fields in reader:
            if fields and (len(fields) > 1 or fields[0].strip()):
                records.append((begins, fields))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise refuse(
            "classify",
            "the table cannot be read",
            f"{path}, the row that starts in line {begins}: {error}",
            "CSV with balanced quotes",
            "double the quotes inside quoted texts",
        ) from error
    finally:
        csv.field_size_limit(limit)
    return records


def _is_header(first: list[str], rest: list[list[str]], text: str | None, label: str | None) -> bool:
    """Whether the first line is a header: it contains a requested or common column name, or only distinct values that
    are not numbers and do not occur again in their columns.
    """
    lower = {name.lower() for name in first}
    if text in first or label in first or lower & {*TEXTS, *LABELS}:
        return True
    repeated = any(name in {fields[column] for fields in rest} for column, name in enumerate(first))
    numbers = any(name.replace(".", "", 1).isdigit() for name in first)
    return not repeated and not numbers and len(lower - {""}) == len(first)


def _choose(
    rows: Sequence[Row],
    names: list[str],
    *,
    text: str | None,
    label: str | None,
    labelled: bool,
    path: Path,
) -> tuple[str, str | None]:
    """The names of the text column and the label column."""
    refuse_all(
        "classify",
        [
            Reason(
                f"no such column for --{option}",
                f"{name!r}; {path} has {', '.join(map(repr, names))}",
                "one of these columns",
                f"pass one of them with --{option}",
            )
            for option, name in (("text", text), ("label", label))
            if name is not None and name not in names
        ],
    )
    if text is not None and text == label:
        raise refuse(
            "classify",
            "--text and --label name the same column",
            repr(text),
            "two different columns",
            "choose another column for one of them",
        )
    if labelled and len(names) < 2:
        raise refuse(
            "classify",
            "no label column",
            f"{path} has only the column {names[0]!r}",
            "a text column and a label column",
            "add a label column, or check the separator",
        )
    if text is None:
        others = [name for name in names if name != label]
        length = {name: sum(len(fields.get(name, "")) for _, fields in rows) for name in others}
        text = _common(others, TEXTS) or max(others, key=length.__getitem__)
    if labelled and label is None:
        others = [name for name in names if name != text]
        distinct = {name: len({fields.get(name, "") for _, fields in rows}) for name in others}
        several = [name for name in others if distinct[name] > 1] or others
        label = _common(others, LABELS) or min(several, key=distinct.__getitem__)
    return text, label


def _common(names: list[str], known: tuple[str, ...]) -> str | None:
    return next((name for name in names if name.lower() in known), None)


def _listed(lines: list[int]) -> str:
    more = f" and {len(lines) - LISTED} more" if len(lines) > LISTED else ""
    return f"{'lines' if len(lines) > 1 else 'line'} {', '.join(map(str, lines[:LISTED]))}{more}"
