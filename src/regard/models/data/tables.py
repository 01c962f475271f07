"""Tables of texts and labels: CSV, TSV and JSON lines, their columns found or named, every fault told with its line."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...common.errors import Reason, Refused, refuse

__all__ = ["KINDS", "Table", "read"]

KINDS = (".csv", ".tsv", ".jsonl")
TEXTS = ("text", "sentence", "review", "message", "content", "comment", "document", "question", "body", "title")
LABELS = ("label", "labels", "class", "category", "target", "sentiment", "intent", "topic", "rating", "y")
LONGEST = 10_000_000  # letters of a field: the csv module stops at 131,072
TOLD = 5  # lines of one fault that are listed

Row = tuple[int, dict[str, str]]  # the line it begins on, and its fields


@dataclass(frozen=True)
class Table:
    """Texts with their labels (None where no label was asked for), the line of each, and the columns they stood in."""

    name: str
    texts: list[str]
    labels: list[str] | None
    lines: list[int]
    columns: tuple[str, str | None]


def read(
    path: Path, text: str | None = None, label: str | None = None, *, labelled: bool = True, where: str = "classify"
) -> Table:
    """Reads the table. Columns are taken by name, or by number where there is no line of names; those not named are
    found.

    Found: the column with a usual name ("text", "label" …), else the one with the longest texts, and of the others the
    one with the fewest different values.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "animals.csv"
    ...     _ = file.write_text('text,label\\n"It barks, often.",dog\\nIt purrs.,cat\\n')
    ...     read(file).texts
    ['It barks, often.', 'It purrs.']
    """
    raw = _content(path, where)
    rows = list(_objects(raw, path, where) if path.suffix == ".jsonl" else _records(raw, path, text, label, where))
    if not rows:
        raise refuse(
            where, "an empty table", given=f"{path} holds no rows", expected="a row for each text", fix="check the file"
        )
    names = list(dict.fromkeys(name for _, fields in rows for name in fields))
    chosen = _choose(rows, names, text=text, label=label, labelled=labelled, path=path, where=where)
    faults: list[Reason] = []
    for what, name in (("text", chosen[0]), ("label", chosen[1])):
        empty = [line for line, fields in rows if name is not None and not fields.get(name, "").strip()]
        if empty:
            faults.append(
                Reason(
                    f"rows without a {what}",
                    given=f"column {name!r} of {path} is empty in {_listed(empty)}",
                    expected=f"a {what} in every row",
                    fix="fill these rows, or remove them",
                )
            )
    if faults:
        raise Refused(where, faults)
    labels = [fields[chosen[1]].strip() for _, fields in rows] if chosen[1] is not None else None
    return Table(str(path), [fields[chosen[0]] for _, fields in rows], labels, [line for line, _ in rows], chosen)


def _content(path: Path, where: str) -> str:
    if path.suffix not in KINDS:
        raise refuse(
            where,
            "not a table",
            given=str(path),
            expected=f"a file that ends in {', '.join(KINDS)}",
            fix="convert it, or name it after its kind",
        )
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise refuse(
            where,
            "the table cannot be read",
            given=f"{path}: {error.strerror}",
            expected="a file",
            fix="check the path",
        ) from error
    if b"\0" in raw:
        raise refuse(
            where,
            "not a text file",
            given=f"{path} holds zero bytes",
            expected="UTF-8 text",
            fix="export the table as CSV in UTF-8",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise refuse(
            where,
            "the table is not UTF-8",
            given=f"{path}, line {line}",
            expected="UTF-8",
            fix="convert it, with iconv for example",
        ) from error


def _objects(raw: str, path: Path, where: str) -> Iterator[Row]:
    """The rows of JSON lines: an object each. Numbers and true or false become their text."""
    faults = []
    for number, line in enumerate(raw.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except ValueError as error:
            faults.append((number, str(error)))
            continue
        if not isinstance(found, dict):
            faults.append((number, f"a {type(found).__name__}"))
            continue
        yield (
            number,
            {
                str(name): value if isinstance(value, str) else json.dumps(value)
                for name, value in found.items()
                if value is not None
            },
        )
    if faults:
        more = f" (and {len(faults) - 1} lines more)" if len(faults) > 1 else ""
        raise refuse(
            where,
            "a line is no JSON object",
            given=f"{path}, line {faults[0][0]}: {faults[0][1]}{more}",
            expected="an object on every line",
            fix="mend the line",
        )


def _records(raw: str, path: Path, text: str | None, label: str | None, where: str) -> Iterator[Row]:
    """The rows of a CSV, its separator found; without a line of names, columns are called 1, 2, …"""
    records = _parsed(raw, path, where)
    if not records:
        return
    width = len(records[0][1])
    uneven = [line for line, fields in records if len(fields) != width]
    if uneven:
        line, fields = next((line, fields) for line, fields in records if len(fields) != width)
        raise refuse(
            where,
            "rows of different widths",
            given=f"{path}: {len(fields)} fields in line {line}, {width} in line {records[0][0]}"
            + (f" (and {len(uneven) - 1} rows more)" if len(uneven) > 1 else ""),
            expected="as many fields in every row",
            fix="put texts that hold the separator into quotes",
        )
    first = [name.strip() for name in records[0][1]]
    named = _is_header(first, [fields for _, fields in records[1:]], text, label)
    if named and len(set(first)) < width:
        twice = [name for name, count in Counter(first).items() if count > 1]
        raise refuse(
            where,
            "columns of the same name",
            given=f"{path}: {', '.join(map(repr, twice))}",
            expected="a name of its own for each",
            fix="rename them in the first line",
        )
    names = first if named else [str(number) for number in range(1, width + 1)]
    for line, fields in records[1:] if named else records:
        yield line, dict(zip(names, fields))


def _parsed(raw: str, path: Path, where: str) -> list[tuple[int, list[str]]]:
    """The fields of every row that is not blank, and the line it begins on."""
    if path.suffix == ".tsv":
        separator = "\t"
    else:
        try:
            separator = csv.Sniffer().sniff(raw.split("\n", 1)[0], ",;\t|").delimiter
        except csv.Error:  # one column, or names that say nothing
            separator = ","
    limit = csv.field_size_limit(LONGEST)
    reader = csv.reader(io.StringIO(raw, newline=""), delimiter=separator, strict=True)
    found, begins = [], 1
    try:
        for fields in reader:
            if fields and (len(fields) > 1 or fields[0].strip()):
                found.append((begins, fields))
            begins = reader.line_num + 1
    except csv.Error as error:
        raise refuse(
            where,
            "the table cannot be read",
            given=f"{path}, the row that begins in line {begins}: {error}",
            expected="CSV with quotes in pairs",
            fix="double the quotes inside a text that is quoted",
        ) from error
    finally:
        csv.field_size_limit(limit)
    return found


def _is_header(first: list[str], rest: list[list[str]], text: str | None, label: str | None) -> bool:
    """Whether the first line names the columns: it holds a name that was given or a usual one, or nothing that comes
    again.
    """
    lower = {name.lower() for name in first}
    if text in first or label in first or lower & {*TEXTS, *LABELS}:
        return True
    again = any(name in {fields[column] for fields in rest} for column, name in enumerate(first))
    numbers = any(name.replace(".", "", 1).isdigit() for name in first)
    return not again and not numbers and len(lower - {""}) == len(first)


def _choose(
    rows: Sequence[Row],
    names: list[str],
    *,
    text: str | None,
    label: str | None,
    labelled: bool,
    path: Path,
    where: str,
) -> tuple[str, str | None]:
    """The columns of the texts and the labels."""
    missing = [
        Reason(
            f"no such column for --{option}",
            given=f"{name!r}; {path} has {', '.join(map(repr, names))}",
            expected="one of them",
            fix="choose one",
        )
        for option, name in (("text", text), ("label", label))
        if name is not None and name not in names
    ]
    if missing:
        raise Refused(where, missing)
    if text is not None and text == label:
        raise refuse(
            where,
            "text and label are one column",
            given=repr(text),
            expected="two columns",
            fix="choose another for one of them",
        )
    if labelled and len(names) < 2:
        raise refuse(
            where,
            "no column for the labels",
            given=f"{path} has only {names[0]!r}",
            expected="a column of texts and one of labels",
            fix="add the labels, or check the separator",
        )
    if text is None:
        length = {name: sum(len(fields.get(name, "")) for _, fields in rows) for name in names if name != label}
        usual = [name for name in length if name.lower() in TEXTS]
        text = usual[0] if usual else max(length, key=lambda name: length[name])
    if labelled and label is None:
        kinds = {name: len({fields.get(name, "") for _, fields in rows}) for name in names if name != text}
        usual = [name for name in kinds if name.lower() in LABELS]
        several = [name for name in kinds if kinds[name] > 1] or list(kinds)
        label = usual[0] if usual else min(several, key=lambda name: kinds[name])
    return text, label


def _listed(lines: list[int]) -> str:
    more = f" and {len(lines) - TOLD} more" if len(lines) > TOLD else ""
    return f"{'lines' if len(lines) > 1 else 'line'} {', '.join(map(str, lines[:TOLD]))}{more}"
