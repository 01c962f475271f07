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
    """A file of the repository's root, its links made relative to the page that includes it."""
    return LINK.sub(
        lambda found: f"[{found[1]}]({os.path.relpath(ROOT / found[2], folder)}{found[3] or ''})",
        (ROOT / name).read_text(encoding="utf-8"),
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
    parameters = [parameter for parameter in command.params if parameter.name != "help"]
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    options = [parameter for parameter in parameters if parameter.param_type_name == "option"]
    usage = " ".join([f"regard {name}", "[OPTIONS]", *(_placeholder(argument) for argument in arguments)])
    parts = [f"## regard {name}", f"```text\n{usage}\n```", command.help]
    if arguments:
        rows = [f"| `{_placeholder(argument)}` | {_cell(argument.help)} |" for argument in arguments]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    if options:
        rows = [f"| {_spelling(option)} | {_cell(option.help)} | {_default(option)} |" for option in options]
        parts.append("\n".join(["| option | | default |", "|---|---|---|", *rows]))
    return "\n\n".join(parts)


def _placeholder(argument) -> str:
    shown = argument.metavar or argument.name.upper()
    return f"{shown if argument.required else f'[{shown}]'}{'...' if argument.nargs == -1 else ''}"


def _spelling(option) -> str:
    names = ", ".join(f"`{name}`" for name in [*option.opts, *option.secondary_opts])
    return names if option.is_flag else f"{names} `{option.metavar or option.type.name.upper()}`"


def _default(option) -> str:
    default = option.show_default if isinstance(option.show_default, str) else option.default
    if option.is_flag or callable(default) or default in (None, (), [], ""):
        return ""
    return f"`{default}`"


def _cell(text) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")
