"""The compatibility page as Markdown, from the results alone."""

import ast
from collections.abc import Callable, Iterable
from pathlib import Path

from regard.conformance import Adapter

from .listed import IMPLEMENTATIONS

__all__ = ["cell_words", "page"]

NOTES = Path(__file__).parent / "notes"
TABLES = (
    (
        "Levels 0 and 1: the textbook",
        "Scale, score, mask, softmax, for any sizes.",
        ("runs", "formula", "groups", "masks", "bias", "causal"),
    ),
    (
        "Level 2: edges",
        "Arguments that not every library has, extreme numbers, other dtypes, and several arguments at once.",
        ("windows", "lengths", "empty rows", "lse", "sinks", "softcap", "infinities", "dtypes", "memory", "together"),
    ),
    (
        "Levels 3 to 5: gradients, isolation, scale",
        "What is masked has no effect, a row does not depend on other rows, and large calls mean what small ones do.",
        ("gradients", "no leaks", "alone", "large", "dropout"),
    ),
)
MEANING = {
    "runs": "returns numbers of the declared shape and dtype, changes nothing else, gives the same result twice",
    "formula": "softmax(q·k / √D) · v for sizes from one row to 100 keys, Q ≠ K, E ≠ D, scores up to 10,000",
    "groups": "query heads that share key heads",
    "masks": "boolean masks in every declared shape, alone and with a causal mask",
    "bias": "numbers that are added to the scores",
    "causal": "causal masks, with fewer rows than keys too",
    "windows": "sliding windows",
    "lengths": "the number of keys of each batch entry",
    "empty rows": "rows, or calls, with nothing to attend to",
    "lse": "the logarithm of the softmax's denominator",
    "sinks": "logits in the denominator",
    "softcap": "cap · tanh(score / cap)",
    "infinities": "biases of −∞ and of −10,000",
    "dtypes": "float16, bfloat16 and float64, as declared",
    "memory": "arrays with strides, repeated entries, read-only arrays",
    "together": "random combinations of two to four arguments",
    "gradients": "of q, k, v, bias, sinks, and through lse",
    "no leaks": "NaN and infinities behind a mask",
    "alone": "rows, chunks, heads and batch entries alone give what they give in the whole: in every bit (b) or "
    "to rounding (r)",
    "large": "100,000 rows, a million keys, memory that does not hold the matrix of weights",
    "dropout": "the share of dropped weights, their scaling, and the same weights in the backward pass",
}
CONVENTIONS = ("layout", "mask", "causal", "window", "groups", "softcap", "empty_row", "lse")
HEADS = {
    "layout": "layout",
    "mask": "true in a mask",
    "causal": "causal, Q ≠ K",
    "window": "window",
    "groups": "shared key heads",
    "softcap": "softcap",
    "empty_row": "empty row",
    "lse": "lse",
}
WORDS = {
    "true-attends": "attends",
    "true-hides": "**hides**",
    "additive": "added",
    "bottom-right": "last row at last key",
    "top-left": "**first row at first key**",
    "self-included": "counts the row itself",
    "self-excluded": "**does not count the row**",
    "both-sides": "**on both sides**",
    "left-right": "**pair, without the row**",
    "left-right-self-included": "pair, with the row",
    "repeat-interleave": "h // (H / G)",
    "tile": "**h mod G**",
    "none": "–",
    "before-bias": "before the bias",
    "after-bias": "**after the bias**",
    "zero": "0",
    "nan": "**NaN**",
    "mean": "**mean of all values**",
    "any": "not said",
    "natural": "natural",
    "base-2": "**base 2**",
}
NEEDS = {"mask": "mask", "causal": "causal", "window": "window", "softcap": "softcap", "empty_row": "mask"}


class Footnotes:
    """The notes in the order in which cells refer to them."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, names: Iterable[str]) -> str:
        """Links to notes, as they stand in a cell."""
        numbers = []
        for name in names:
            if name not in self.names:
                self.names.append(name)
            numbers.append(self.names.index(name) + 1)
        return "".join(f" [{number}](#note-{number})" for number in numbers)

    def listed(self) -> list[str]:
        """The list of notes: what each script shows, and where it is."""
        return [
            f'{number}. <a id="note-{number}"></a>{said(name)} ([script](../bench/compatibility/notes/{name}.py))'
            for number, name in enumerate(self.names, 1)
        ]


def said(name: str) -> str:
    """The first line of a script."""
    found = ast.get_docstring(ast.parse((NOTES / f"{name}.py").read_text(encoding="utf-8")))
    assert found is not None, name
    return found.splitlines()[0].rstrip(".") + "."


def page(results: dict) -> str:
    """The page."""
    notes = Footnotes()
    found = results["implementations"]
    lines = [*intro(results), *levels(found), *conventions(found, notes)]
    for title, about, columns in TABLES:
        lines += [f"## {title}", "", about, ""]
        lines += table(["", *columns], found, lambda each, columns=columns: laws(each, columns, notes))
        lines += ["", *(f"- **{name}**: {MEANING[name]}" for name in columns), ""]
    lines += ["## Notes", "", "Each note is shown by a script of a few lines that does not use regard.", ""]
    lines += [*notes.listed(), ""]
    return "\n".join(lines)


def intro(results: dict) -> list[str]:
    """What the page is, how to read a cell, and how to repeat it."""
    ran = sum(each["cases"] for each in results["implementations"])
    return f"""\
# Compatibility

Attention functions of many libraries have the same name and the same formula.
They differ in what a mask means, where a causal mask begins, what a row gets that may attend to nothing, and what
happens to a NaN behind a mask.
This page says what each of them does, as measured by [`regard conform`](how-to/conform.md): each function is called
in its own conventions, and every result is compared with the [laws](reference/laws.md) in float64, within a bound on
the rounding errors of each number.
A convention that differs from the laws of regard is not a mistake. It is declared, and the function is judged by it.

In a cell, ✓ means that every case holds, and the number is the largest error, as a share of what rounding allows.
✗ is followed by how many cases fail. – means that the function has no such argument. "refuses" means an exception,
where a function may raise one. Numbers in brackets lead to [notes](#notes). Nothing is claimed that was not run.

```sh
pip install '.[look,peers]' -c constraints.txt
python -m bench.compatibility
```

{results["date"]}, {ran:,} cases, {results["minutes"]:.0f} minutes on {results["cores"]} cores of {results["cpu"]}, \
Python {results["python"]}.
[results.json](../bench/compatibility/results.json) has every number; the functions and their declarations are in
[implementations](../bench/compatibility/implementations).

""".splitlines()


def levels(found: list[dict]) -> list[str]:
    """How far each implementation gets."""
    lines = [
        "## Levels",
        "",
        "A level is reached if every case up to it holds: 0 runs · 1 textbook · 2 edges · 3 gradients · 4 isolation "
        "(4b: in every bit, 4r: to rounding) · 5 scale.",
        "",
        "| | version | level | cases that hold | fail | refused | no such argument |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in found:
        counts = [sum(cell["counts"].get(status, 0) for cell in each["cells"].values()) for status in STATUSES]
        stopped = f" ({each['stopped']})" if each["stopped"] else ""
        of = "" if each["requested"] == 5 else f" of {each['requested']}"
        lines.append(f"| {each['name']} | {each['version']} | {each['mark']}{of}{stopped} | {join(counts)} |")
    return [*lines, ""]


STATUSES = ("pass", "fail", "refused", "absent")


def conventions(found: list[dict], notes: Footnotes) -> list[str]:
    """How each implementation is called. Bold: not as in the laws."""
    return [
        "## Conventions",
        "",
        "What each function declares, confirmed by measuring it; with ? declared only. **Bold** is what differs from "
        "the laws of regard.",
        "",
        *table(["", *HEADS.values()], found, lambda each: [convention(each, name, notes) for name in CONVENTIONS]),
        "",
    ]


def convention(result: dict, name: str, notes: Footnotes) -> str:
    """One cell of the table of conventions."""
    if not result["adapter"]:
        return "not run"
    adapter = vars(Adapter()) | result["adapter"]
    linked = notes(of(result).get(f"{name} convention", ()))
    roles = set(adapter["parameters"]) | ({"window"} if "window_before" in adapter["parameters"] else set())
    if (name in NEEDS and NEEDS[name] not in roles) or (name == "lse" and "lse" not in str(adapter["returns"])):
        return "–" + linked
    words = {"layout": adapter["layout"], "lse": f"{WORDS[adapter['lse']]}, {adapter['lse_layout']}"}
    confirmed = "" if name in result["conventions"] else "?"
    return words.get(name, WORDS.get(str(adapter[name]), "")) + confirmed + linked


def laws(result: dict, columns: Iterable[str], notes: Footnotes) -> list[str]:
    """The cells of one implementation."""
    linked = of(result)
    words = {name: cell_words(result, name) for name in columns}
    return [text + notes(linked.get(name, ()) if text not in ("–", "not run") else ()) for name, text in words.items()]


def cell_words(result: dict, name: str) -> str:
    """What a cell says, without its notes."""
    cell = result["cells"].get(name)
    if cell is None:
        return "not run" if level_of(name) > result["requested"] or not result["cells"] else "–"
    counts = cell["counts"]
    ran = sum(counts.values()) - counts.get("absent", 0)
    if not ran:
        return "–"
    failed = counts.get("fail", 0) + counts.get("unexpected-pass", 0)
    if failed:
        return f"✗ {failed} of {ran}"
    if counts.get("refused", 0) == ran:
        return "refuses"
    grade = {"bits": " b", "rounding": " r"}[cell["grades"][-1]] if cell["grades"] else ""
    refused = f", {counts['refused']} refused" if counts.get("refused") else ""
    worst = "" if cell["worst"] is None else f" {cell['worst']:.2g}"
    return f"✓{grade}{worst}{refused}"


def level_of(name: str) -> int:
    """The level at which a column is first judged."""
    return {"gradients": 3, "no leaks": 4, "alone": 4, "large": 5, "dropout": 5}.get(name, 2)


def of(result: dict) -> dict[str, tuple[str, ...]]:
    """The notes of an implementation by column."""
    return next((each.notes for each in IMPLEMENTATIONS if each.name == result["name"]), {})


def table(heads: list[str], found: list[dict], cells: Callable[[dict], list[str]]) -> list[str]:
    """A table with a row for each implementation."""
    rows = [f"| {each['name']} | {join(cells(each))} |" for each in found]
    return [f"| {join(heads)} |", "|" + "---|" * len(heads), *rows]


def join(cells: Iterable[object]) -> str:
    return " | ".join(map(str, cells))
