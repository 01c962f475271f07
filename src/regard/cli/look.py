"""`regard look`: a model runs once, and its attention is shown in the terminal, on a page, or by a server of this
machine.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..common.errors import Reason, Refused, refuse

if TYPE_CHECKING:
    from ..audits import Audit

__all__ = ["look"]

PAGE = Path("attention.html")
LIMIT = "2GB"


class Given(NamedTuple):
    """What the words of the command name: a recorded run, or a model (None: the default one) and a text."""

    run: Path | None
    model: str | None
    text: str | None


def look(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] TEXT | FILE | - | RUN",
            show_default=False,
            help="A model (folder or hub id; MiniLM, offline, if there is none), then a text, a text file, "
            "or - for standard input. "
            "Or the folder of a recorded run.",
        ),
    ] = None,
    *,
    out: Annotated[Path | None, typer.Option(help="Where the page is written.", show_default=str(PAGE))] = None,
    save: Annotated[
        Path | None, typer.Option(help="Record the run into this folder, call by call.", show_default=False)
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --save: write over a recorded run.")] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Serve the page to this machine instead, for runs of any length.")
    ] = False,
    port: Annotated[
        int | None, typer.Option(help="The port of --serve.", min=0, max=65535, show_default="a free one")
    ] = None,
    compare: Annotated[Path | None, typer.Option(help="Show a recorded run beside it.", show_default=False)] = None,
    layers: Annotated[
        str | None, typer.Option(help="Record only these: 0,3-5 or '*.attn'.", show_default="all")
    ] = None,
    generate: Annotated[
        int | None, typer.Option(help="Let the model write so many tokens.", min=1, show_default=False)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="The text that an encoder–decoder should write.", show_default=False)
    ] = None,
    picture: Annotated[Path | None, typer.Option(help="A picture, for models that see.", show_default=False)] = None,
    limit: Annotated[str | None, typer.Option(help="Record no more than this.", show_default=LIMIT)] = None,
    layer: Annotated[
        int | None, typer.Option(help="Show this attention call first.", show_default="the most telling")
    ] = None,
    head: Annotated[int | None, typer.Option(help="Show this head first.", show_default="the most telling")] = None,
    token: Annotated[
        str | None, typer.Option(help="Show this token first: position or word.", show_default="the most telling")
    ] = None,
    open_page: Annotated[bool, typer.Option("--open/--no-open", help="Open the page in the browser.")] = False,
) -> None:
    """Run a text through a trained model and look at its attention."""
    from ..lens.storage import folder as container
    from ..lens.storage.byte_sizes import size_of

    given = _given(words or [], picture)
    recording = {
        "--save": save,
        "--layers": layers,
        "--generate": generate,
        "--target": target,
        "--picture": picture,
        "--limit": limit,
    }
    _together(
        given, recording, {"--port": port if not serve else None, "--out": out if serve else None}, force and not save
    )
    size_of(limit or LIMIT, "look")
    chosen = _layers(layers)
    if not serve:
        _check_out(out or PAGE)
    if save:
        container.check_free(save, force)
    if picture and not picture.is_file():
        raise refuse("look", "no such picture", given=str(picture), expected="an image file", fix="check the path")
    other = None if compare is None else container.open_run(compare)
    run = None if given.run is None else container.open_run(given.run)

    from rich.console import Console  # here and below: what is heavy loads after the arguments are known to be good

    if run is None:
        with Console(stderr=True).status("running the model"):
            from ..lens.look import look as recorded

            run = recorded(
                given.model,
                given.text,
                target=target,
                picture=picture,
                generate=generate or 0,
                layers=chosen,
                limit=limit or LIMIT,
                into=save,
                overwrite=force,
            )
    from ..audits import audit
    from ..lens.drawing.terminal import summary
    from ..lens.runs.first_view import choose

    found = audit(run)
    choice = choose(run, layer, head, token)
    start = {"call": choice.call, "head": choice.head, "query": choice.query}
    console = Console(highlight=False)
    summary(console, run, choice)
    console.print()
    _tell_findings(console, found)
    findings = [finding.to_json() for finding in found.findings]

    def tell(sentence: str) -> None:
        console.print(sentence, markup=False, soft_wrap=True)

    if save:
        tell(f"The run is in {save}: {_command(save)} shows it again.")
    if serve:
        from ..lens.viewer.server import serve as serves

        serves(
            run,
            other,
            port=port or 0,
            findings=findings,
            start=start,
            open_browser=open_page,
            tell=lambda address: tell(f"Look at it in a browser on this machine: {address}\nCtrl-C ends it."),
        )
        return
    page = _page(run, other, findings, start, out=out, folder=save or given.run, tell=tell)
    if open_page and page:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())


def _tell_findings(console, found: Audit) -> None:
    """What is wrong in full; notes stand on the page."""
    from rich.text import Text

    from ..lens.runs.labels import visible

    for finding in found.findings:
        if finding.severity != "note":
            console.print(
                Text("\n".join(" ".join(map(visible, line.split())) for line in str(finding).splitlines()), "red")
            )
            console.print()
    notes = sum(finding.severity == "note" for finding in found.findings)
    if notes:
        console.print(Text(f"The audit has {notes} note{'s' * (notes > 1)} on the page.", "dim"))


def _page(run, other, findings, start: dict[str, int], *, out: Path | None, folder: Path | None, tell) -> Path | None:
    """Writes the page -> where it is; None for a run that is too long for one, and says how to serve it."""
    from ..lens.storage.byte_sizes import shown
    from ..lens.viewer import page
    from ..lens.viewer.embed import fits

    if not all(fits(one) for one in (run, other) if one is not None):
        beside = () if other is None else ("--compare", other.facts["folder"])
        mend = f"serve it: {_command(folder, *beside, '--serve')}" if folder else "serve it: say the same with --serve"
        if folder is None or out is not None:
            raise refuse(
                "look",
                "the run is too long for one page",
                given=f"{max(max(call.shape[1:]) for call in run.calls)} tokens, {len(run.calls)} layers",
                expected="a shorter one, or a server",
                fix=mend,
            )
        tell(f"It is too long for one page; {mend}")
        return None
    path = out or PAGE
    made = page(run, other, findings=findings, start=start)
    try:
        path.write_text(made, encoding="utf-8", errors="replace")
    except OSError as error:
        raise refuse(
            "look",
            "the page cannot be written",
            given=f"{path}: {error.strerror}",
            expected="a place that can be written",
            fix="choose another with --out",
        ) from error
    tell(f"The page is in {path} ({shown(len(made.encode(errors='replace')))}): open it in a browser.")
    return path


def _command(folder: Path, *options: str) -> str:
    return shlex.join(["regard", "look", str(folder), *options])


def _given(words: list[str], picture: Path | None) -> Given:
    """What the words name. A single word is a recorded run, a file or a text; with a picture it is the model."""
    from ..lens.storage.reader import is_run

    if len(words) > 2:
        raise refuse(
            "look",
            "too many words",
            given=f"{len(words)} arguments",
            expected="a model and a text",
            fix="put the text in quotes",
        )
    if len(words) == 1 and is_run(words[0]):
        return Given(Path(words[0]), None, None)
    if picture is not None:
        return Given(None, words[0] if words else None, _text(words[1]) if len(words) == 2 else None)
    if len(words) == 2:
        return Given(None, words[0], _text(words[1]))
    return Given(None, None, _text(words[0] if words else None))


def _together(given: Given, recording: dict[str, Any], astray: dict[str, Any], forced: bool) -> None:
    """Refuses options that would change nothing."""
    reasons = [
        Reason(
            f"{name} has nothing to act on",
            given=f"the recorded run {given.run}",
            expected="a model and a text",
            fix="leave it out",
        )
        for name, value in recording.items()
        if value is not None and given.run is not None
    ]
    wants = {"--port": "--serve", "--out": "no --serve"}
    reasons += [
        Reason(f"{name} has nothing to act on", given=f"{name} {value}", expected=wants[name], fix="leave it out")
        for name, value in astray.items()
        if value is not None
    ]
    if forced:
        reasons.append(
            Reason(
                "--force has nothing to act on", given="no --save", expected="a run that is saved", fix="leave it out"
            )
        )
    if reasons:
        raise Refused("look", reasons)


def _layers(text: str | None) -> list[int | str] | None:
    """0,3-5 as numbers; other words are names or patterns."""
    if text is None:
        return None
    found: list[int | str] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", part)
        if numbers is None and part.strip():
            found.append(part.strip())
            continue
        first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (1, 0)
        if first > last:
            raise refuse(
                "look",
                "no layers",
                given=f"--layers {text}",
                expected="numbers, first-last, or names, with commas between",
                fix="write 0,3-5",
            )
        found += range(first, last + 1)
    return found


def _text(word: str | None) -> str:
    """The text that was asked for: written out, in a file, or from standard input."""
    if word is None and sys.stdin.isatty():
        raise refuse(
            "look",
            "no text",
            given="nothing",
            expected="a text",
            fix="write it behind the command in quotes, or name a file",
        )
    path = Path(word or "-")
    if word is None or word == "-":
        raw, source = sys.stdin.buffer.read(), "standard input"
    elif _is_path(word):
        try:
            raw, source = path.read_bytes(), word
        except OSError as error:
            mend = (
                "behind it write the text that the model should read"
                if path.is_dir()
                else "check the path; a text that looks like one comes through standard input: regard look -"
            )
            raise refuse(
                "look",
                "the file cannot be read",
                given=f"{word}: {error.strerror}",
                expected="a text file, or a text",
                fix=mend,
            ) from error
    else:
        raw, source = word.encode("utf-8", "surrogateescape"), "the argument"
    try:
        words = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(
            "look",
            "the text is not UTF-8",
            given=f"byte {error.start} of {source}",
            expected="UTF-8",
            fix="convert it, with iconv for example",
        ) from error
    if not words.strip():
        raise refuse("look", "no text", given=f"{source} holds no words", expected="a text", fix="give some words")
    return words


def _is_path(word: str) -> bool:
    """Whether a word names a file: it is one, or it can hardly be meant as a text."""
    return _is_there(word) or re.fullmatch(r"(\.{0,2}|~)/\S*|\S+\.(txt|md|json|html|csv|py)", word) is not None


def _is_there(word: str) -> bool:
    """Whether a word is the name of something."""
    try:
        return bool(word.strip()) and Path(word).exists()
    except (OSError, ValueError):  # too long for a name, or with a NUL in it
        return False


def _check_out(out: Path) -> None:
    """Pages are written over without asking; anything else is not."""
    if out.is_dir():
        raise refuse(
            "look",
            "the page cannot be written",
            given=f"{out} is a folder",
            expected="the name of a file",
            fix=f"use --out {out / 'attention.html'}",
        )
    if not out.parent.is_dir():
        raise refuse(
            "look",
            "the page cannot be written",
            given=f"no folder {out.parent}",
            expected="a folder that is there",
            fix="make it first",
        )
    if out.exists() and not (out.is_file() and _is_page(out)):
        raise refuse(
            "look",
            "a file is in the way",
            given=f"{out} is not a page of regard's",
            expected="a new name, or a page of regard's",
            fix="choose another name with --out, or remove the file",
        )


def _is_page(path: Path) -> bool:
    with path.open("rb") as file:
        begin = file.read(4000)
    return not begin or b'name="generator" content="regard"' in begin
