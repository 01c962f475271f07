"""Hooks of MkDocs: pages made from the source (commands, CONTRIBUTING, CHANGELOG), and links to files outside docs/.

A page that holds `<!-- commands -->` gets the options of every `regard` command there, read from typer. A page that
holds `<!-- include: FILE -->` gets that file of the repository. Links to source files are for readers of the
repository; on the site, which does not contain these files, they become the path as text.
"""

import os
import re
from pathlib import Path

import typer

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[([^\]]+)\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown, page, **_):
    """The text of a page, before it is rendered."""
    folder = (DOCS / page.file.src_uri).parent
    markdown = re.sub(r"<!-- include: (\S+) -->", lambda found: _included(found[1], folder), markdown)
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", commands())
    return LINK.sub(lambda found: _link(found, folder), markdown)


def _included(name: str, folder: Path) -> str:
    """A file outside docs/, its links made relative to the page that includes it."""
    path = ROOT / name
    return LINK.sub(
        lambda found: f"[{found[1]}]({os.path.relpath(path.parent / found[2], folder)}{found[3] or ''})",
        path.read_text(encoding="utf-8"),
    )


def _link(found: re.Match, folder: Path) -> str:
    target = (folder / found[2]).resolve()
    if target.is_relative_to(DOCS):
        return found[0]
    path = f"`{target.relative_to(ROOT)}`"
    return path if found[1].strip("`") in (path.strip("`"), target.name) else f"{found[1]} ({path})"


def commands() -> str:
    """Usage, arguments and options of every command, as Markdown."""
    from regard.cli import app

    group = typer.main.get_command(app)
    return "\n\n".join(_command(name, command) for name, command in group.commands.items())


def _command(name, command) -> str:
    context = command.make_context(name, [], resilient_parsing=True)
    parts = [f"## regard {name}", f"```text\nregard {name} {' '.join(command.collect_usage_pieces(context))}\n```"]
    parts.append(command.help)
    for kind in ("argument", "option"):
        rows = [
            _row(parameter.get_help_record(context), kind)
            for parameter in command.params
            if parameter.param_type_name == kind and parameter.name != "help"
        ]
        if rows:
            parts.append("\n".join([f"| {kind} | | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _row(record, kind: str) -> str:
    """One line of a table, from what `--help` shows: "--port <int range>", "Port. [default: (free); 0<=x<=65535]"."""
    written, text = record
    default, limits = "", []
    if found := re.search(r"\s*\[([^\[\]]+)\]$", text):
        text = text[: found.start()]
        for each in found[1].split("; "):
            if each.startswith("default: "):
                default = each.removeprefix("default: ").strip("()")
            else:
                limits.append(f"`{each}`")
    names, _, placeholder = written.partition(" <")
    shown = ", ".join(f"`{name}`" for name in re.split(", | / ", names))
    if kind == "option" and placeholder:
        shown += f" `{placeholder.rstrip('>').upper()}`"
    return f"| {_cell(shown)} | {_cell(' '.join([text, *limits]))} | {_cell(default)} |"


def _cell(text) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")
