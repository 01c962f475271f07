"""What a question shows beside its words, and why other answers are wrong, as Markdown."""

from __future__ import annotations

from collections.abc import Iterator

from ..chapter import Question


def given(question: Question) -> str:
    """What a question shows to choose from."""
    fields = question.fields
    match question.form:
        case "choice":
            return "\n".join(f"{at}. {each['text']}" for at, each in enumerate(fields["choices"], 1))
        case "pairs":
            left = "\n".join(f"- **{chr(65 + at)}** {text}" for at, text in enumerate(fields["left"]))
            return left + "\n\n" + "\n".join(f"{at}. {text}" for at, text in enumerate(fields["right_side"], 1))
        case "table":
            return f"Rows: {', '.join(map(str, fields['rows']))}. Columns: {', '.join(map(str, fields['columns']))}."
        case "line":
            lines = fields["code"].strip("\n").splitlines()
            width = len(str(len(lines)))
            return "```text\n" + "\n".join(f"{at:{width}} {line}" for at, line in enumerate(lines, 1)) + "\n```"
    return ""


def whys(question: Question) -> Iterator[str]:
    """Why the other answers are wrong."""
    fields = question.fields
    match question.form:
        case "choice":
            for at, each in enumerate(fields["choices"], 1):
                if each.get("why"):
                    yield f"{at}: {each['why']}"
        case "pairs" | "table":
            for name, why in zip(fields["left" if question.form == "pairs" else "rows"], fields["why"]):
                yield f"{name}: {why}"
        case _:
            for each in fields.get("wrong", ()):
                yield f"{each['answer']}: {each['why']}"
