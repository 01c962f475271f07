"""`regard look`: runs a model on a text and shows its attention in the terminal, as an HTML page, or on a local
server; the detectors of every head in many texts, as tables or as JSON.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import unescape
from os.path import isdir, isfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ..common.errors import Reason, refuse, refuse_all
from ..common.files.output import check_output, replacing
from ..common.optional import needs
from ..common.text.units import counted
from ..language.expr import Expr
from ..lens.storage.reader import is_run
from ..lens.text_or_path import exists
from ..lens.trained import is_trained
from .arguments import Inputs, flag, is_own, model_of, option, passed, read_text
from .measure_text import EXAMPLE, parse_measures
from .terminal import Console, emit_json, show_finding

if TYPE_CHECKING:
    from ..lens import Run


PAGE = Path("attention.html")
LIMIT = "2GB"
# The options of a recording.
RECORDING = (
    "--measure",
    "--save",
    "--layers",
    "--generate",
    "--target",
    "--picture",
    "--limit",
    "--inputs",
    "--effects",
    "--source",
)


class Other:
    """What a run is compared with. Refused: a folder without a recorded run or a model, or no text."""

    def __init__(self, word: str):
        from ..lens.storage.folder import open_run

        self.word = word
        self.run = open_run(Path(word)) if is_run(word) else None
        a_model = isfile(f"{word}/config.json") or is_trained(word)
        self.model = word if self.run is None and a_model else None
        if self.run is None and self.model is None and isdir(word):
            raise refuse(
                "look",
                "nothing to compare with",
                f"{word} is a folder without a recorded run or a model",
                "a recorded run, a model folder, or another text",
                "pass a folder that --save has written, a model folder, or a text in quotes",
            )
        self.text = read_text("look", word) if self.run is None and self.model is None else None

    def run_for(self, run: Run, limit: str) -> Run:
        """The run to compare `run` with: the recorded one, its text in the other model, or the other text in its model.

        Refused: a text if the model of `run` is not known, a model if `run` has no text.
        """
        from ..lens.look import look
        from ..lens.open_model import OpenModel

        if self.run is not None:
            return self.run
        if self.text is not None:
            record = OpenModel.of(run)
            if record is None:
                raise refuse(
                    "look",
                    "the model of this run is not known",
                    f"another text, --compare {self.text[:40]!r}, and a recorded run, which names no model",
                    "a model and a text, of which another text is recorded too",
                    "pass the model and the text instead of the recorded run",
                )
            return record(self.text)
        if not run.text:
            raise refuse(
                "look",
                "the run has no text for the other model",
                f"--compare {self.word}",
                "a run of a text",
                "record the other model with --save FOLDER, and compare with that folder",
            )
        made = run.facts.get("made", {})
        repeated = {name: made[name] for name in ("generate", "layers") if name in made}
        return look(self.model, run.text, limit=limit, **repeated)


IMAGES = {".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif"}


class Given(NamedTuple):
    """The positional arguments: a recorded run, or a model (None: the default model) and a text."""

    run: Path | None
    model: str | None
    text: str | None


def look(
    context: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL] [IMAGE] TEXT | FILE… | FOLDER | - | RUN",
            show_default=False,
            help="Model folder, Hugging Face model id or FILE.py:CLASS (default: MiniLM, if installed), then an image "
            "file for models that see, and a text, a text file, or - for standard input; several files or a folder of "
            ".txt files give the detectors of every head. Or the folder of a recorded run, or of regard train or "
            "classify.",
        ),
    ] = None,
    *,
    out: Annotated[Path | None, option("Write the HTML page to this file.", str(PAGE))] = None,
    save: Annotated[Path | None, option("Record the run in this folder.")] = None,
    force: Annotated[bool, flag("--force", "Overwrite the recorded run in --save.")] = False,
    serve: Annotated[
        bool, flag("--serve", "Serve the page locally: for other texts, changed rules, and long runs.")
    ] = False,
    port: Annotated[int | None, option("Port for --serve.", "a free port", min=0, max=65535)] = None,
    compare: Annotated[
        str | None,
        option(
            "Compare with a recorded run, with another model on the same text, or with another text.",
            metavar="<RUN, MODEL or TEXT>",
        ),
    ] = None,
    layers: Annotated[str | None, option("Record only these layers, as in 0,3-5 or '*.attn'.", "all")] = None,
    generate: Annotated[int | None, option("Generate this many tokens.", min=1)] = None,
    effects: Annotated[
        str | None,
        option("Rank what the output depends on, heads first: heads, layers, tokens or stream.", metavar="<OF>"),
    ] = None,
    source: Annotated[
        str | None,
        option(
            "A text of as many tokens, of whose run heads, layers or the stream (without --effects) are taken.", "0"
        ),
    ] = None,
    inputs: Inputs = None,
    target: Annotated[str | None, option("Target text, for encoder-decoder models.")] = None,
    picture: Annotated[Path | None, option("Image file, for vision models.")] = None,
    measure: Annotated[
        list[str] | None,
        option(f"Own detector, such as '{EXAMPLE}'. Can be repeated.", metavar="<NAME=EXPR>"),
    ] = None,
    lines: Annotated[bool, flag("--lines", "Read every line of the file as a text.")] = False,
    as_json: Annotated[bool, flag("--json", "Print the detectors of every head as JSON.")] = False,
    limit: Annotated[str | None, option("Maximum size of the recording.", LIMIT)] = None,
    layer: Annotated[int | None, option("Show this attention call first.", "automatic")] = None,
    head: Annotated[int | None, option("Show this head first.", "automatic")] = None,
    token: Annotated[str | None, option("Show this token first: position or text.", "automatic")] = None,
    open_page: Annotated[bool, flag("--open/--no-open", "Open the page in a browser.")] = False,
) -> None:
    """Run a model on a text and show its attention.

    Writes an HTML page and prints a summary. With many texts, prints what every head does on average.
    """
    from ..lens.storage import folder as container
    from ..lens.storage.manifest import size_of

    measures = parse_measures(measure or ())
    wishes = passed(context)
    words, picture = _with_image(words or [], picture)
    if texts := several(words, lines, as_json):
        check_unused(wishes)
        detect(texts, measures, _parse_layers(layers), limit or LIMIT, as_json=as_json)
        return
    given = _parse_words(words, picture)
    _check_options(given, wishes)
    size_of(limit or LIMIT, "look")
    chosen = _parse_layers(layers)
    if serve:
        needs("look --serve", "look", "starlette", "uvicorn")
    else:
        check_output("look", "--out", out or PAGE, what="a page")
    if given.run is None:
        needs("look", "look", "torch", "transformers", "safetensors")
    if save:
        container.check_free(save, force)
    if picture and not picture.is_file():
        raise refuse("look", "the image file does not exist", str(picture), "an image file", "check the path")
    other = None if compare is None else Other(compare)
    run = None if given.run is None else container.open_run(given.run)

    if run is None:
        with Console(stderr=True).status("running the model"):
            from ..lens.look import look as record

            what, accepts = model_of("look", given.model, inputs)
            effect = None
            if effects or source:
                from ..lens.interventions.effects import effects as ranked

                of: Any = effects or "stream"
                effect = ranked(what, given.text, of=of, source=source, inputs=accepts, target=target, layer=chosen)
            run = record(
                what,
                given.text,
                inputs=accepts,
                target=target,
                picture=picture,
                generate=generate or 0,
                layers=chosen,
                limit=limit or LIMIT,
                into=save,
                overwrite=force,
                measures=measures or None,
                effects=effect,
            )
    second = None if other is None else other.run_for(run, limit or LIMIT)
    from ..audits import audit
    from ..lens.runs.first_view import choose
    from ..lens.terminal import changes, summary
    from ..lens.trained import trained_facts

    report = audit(run)
    findings = [finding.to_json() for finding in report.findings]
    choice = choose(run, layer, head, token, findings)
    console = Console()
    summary(console, run, choice)
    if second is not None:
        changes(console, run, second)
    if run.effects is not None:
        console.print(f"\n{run.effects}", markup=False)
    if facts := trained_facts(run.facts):
        console.print()
    for line in facts:
        console.say(line, "dim", soft_wrap=True)
    for finding in report.findings:  # faults and warnings in full; notes are on the page
        if finding.severity != "note":
            rows = [("where", finding.where), *finding.rows]
            show_finding(console, finding.severity, finding.severity, finding.check, rows)

    def say(message: str) -> None:
        console.print(message, markup=False, soft_wrap=True)

    if save:
        say(f"Run saved in {save}. To show it again: {_command(save)}")
    if serve:
        from ..lens.open_model import OpenModel
        from ..lens.recording.keeper import RecordingOptions
        from ..lens.viewer.server import serve as serve_page

        record_text = OpenModel.of(run)
        if measures and not (picture or target):  # which a run does not have as text
            options = RecordingOptions(chosen, limit=limit or LIMIT, measures=measures)
            record_text = OpenModel(given.model, options, generate or 0)
        serve_page(
            run,
            second,
            port=port or 0,
            findings=findings,
            start=choice.place,
            record=record_text,
            find=lambda found: [finding.to_json() for finding in audit(found).findings],
            open_browser=open_page,
            tell=lambda address: say(f"Press Ctrl-C to stop. Open in a browser on this machine: {address}"),
        )
        return
    written = _write_page(
        run, second, findings, choice.place, out=out, folder=save or given.run, compare=compare, say=say
    )
    if open_page and written:
        import webbrowser

        webbrowser.open(written.resolve().as_uri())


def _write_page(
    run: Run,
    other: Run | None,
    findings: list[dict[str, Any]],
    start: dict[str, Any],
    *,
    out: Path | None,
    folder: Path | None,
    compare: str | None,
    say: Callable[[str], None],
) -> Path | None:
    """Writes the page and returns its path; prints how to serve the run and returns None if it is too long."""
    from ..lens.storage.manifest import shown
    from ..lens.viewer import page
    from ..lens.viewer.embed import fits

    if not all(fits(one) for one in (run, other) if one is not None):
        compared = () if compare is None else ("--compare", compare)
        fix = f"serve it: {_command(folder, *compared, '--serve')}" if folder else "serve it: add --serve"
        if folder is None or out is not None:
            raise refuse(
                "look",
                "the run is too long for one page",
                f"{counted(max(max(call.shape[1:]) for call in run.calls), 'token')}, "
                f"{counted(len(run.calls), 'layer')}",
                "a shorter run, or --serve",
                fix,
            )
        say(f"The run is too long for one page; {fix}")
        return None
    path = out or PAGE
    html = page(run, other, findings=findings, start=start)
    before = _title(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else ""
    with replacing("look", "--out", path) as draft:
        draft.write_text(html, encoding="utf-8", errors="replace")
    instead = f", in place of the page of “{before}”; --out keeps both" if before not in ("", _title(html)) else ""
    say(f"Page written to {path} ({shown(len(html.encode(errors='replace')))}){instead}. Open it in a browser.")
    return path


def _title(html: str) -> str:
    """The model and text in the title of a page; "" if it is not a page of regard."""
    found = re.search(r"<title>regard · (.*?)</title>", html, re.DOTALL)
    return unescape(found[1]) if found else ""


def _command(folder: Path, *options: str) -> str:
    return shlex.join(["regard", "look", str(folder), *options])


def _with_image(words: list[str], picture: Path | None) -> tuple[list[str], Path | None]:
    """The words without the one that is an image file, if there is one behind the model, and the image."""
    images = [word for word in words[1:] if Path(word).suffix.lower() in IMAGES and Path(word).is_file()]
    if picture is not None or len(images) != 1:
        return words, picture
    return [word for word in words if word != images[0]], Path(images[0])


def _parse_words(words: list[str], image: Path | None) -> Given:
    """Interprets the positional arguments. A single one is a recorded run, a file or a text; with an image, a model."""
    if len(words) > 2:
        raise refuse(
            "look", "too many arguments", f"{len(words)} arguments", "a model and a text", "put the text in quotes"
        )
    if len(words) == 1 and is_run(words[0]):
        return Given(Path(words[0]), None, None)
    if len(words) == 1 and (is_own(words[0]) or is_trained(words[0])):
        return Given(None, words[0], None)
    if len(words) == 2:
        return Given(None, words[0], read_text("look", words[1]))
    word = words[0] if words else None
    return Given(None, word, None) if image is not None else Given(None, None, read_text("look", word))


def _check_options(given: Given, options: Mapping[str, Any]) -> None:
    """Rejects options that have no effect."""
    reasons = [
        Reason(
            f"{name} has no effect on a recorded run",
            f"{name} and the recorded run {given.run}",
            "a model and a text",
            f"omit {name}",
        )
        for name in RECORDING
        if name in options and given.run is not None
    ]
    name, way, fix = ("--out", "with", "omit") if "--serve" in options else ("--port", "without", "add")
    if name in options:
        reasons.append(
            Reason(
                f"{name} has no effect {way} --serve",
                f"{name} {options[name]} {way} --serve",
                "options that fit together",
                f"omit {name}, or {fix} --serve",
            )
        )
    if "--force" in options and "--save" not in options:
        reasons.append(
            Reason(
                "--force has no effect without --save",
                "--force without --save",
                "--force with --save FOLDER",
                "omit --force",
            )
        )
    refuse_all("look", reasons)


def _parse_layers(text: str | None) -> list[int | str] | None:
    """Parses --layers: 0,3-5 as numbers; other parts are names or patterns."""
    if text is None:
        return None
    layers: list[int | str] = []
    for part in text.split(","):
        numbers = re.fullmatch(r"\s*([0-9]{1,4})(?:-([0-9]{1,4}))?\s*", part)
        if numbers is None and part.strip():
            layers.append(part.strip())
            continue
        first, last = (int(numbers[1]), int(numbers[2] or numbers[1])) if numbers else (1, 0)
        if first > last:
            raise refuse(
                "look",
                "invalid --layers",
                f"--layers {text}",
                "comma-separated numbers, ranges or names",
                "pass, for example, --layers 0,3-5",
            )
        layers += range(first, last + 1)
    return layers


TEXTS = "*.txt"  # the files of a folder that are texts
USED = ("--measure", "--layers", "--limit", "--lines", "--json")  # the options that many texts have


class Several(NamedTuple):
    """A model (None: the default model), and many texts: paths, or pairs of a name and a text."""

    model: str | None
    texts: Sequence[Path | tuple[str, str]]


def several(words: Sequence[str], lines: bool, as_json: bool) -> Several | None:
    """The model and the texts of the arguments; None if they are one text that is to be shown on a page.

    Many texts are: several files, a folder of .txt files, and the lines of a file with --lines; with --json, one text,
    too. Refused: files that do not exist, all at once.
    """
    if words and is_run(words[0]):
        if lines or as_json:
            option = "--lines" if lines else "--json"
            raise refuse(
                "look",
                f"{option} has no effect on a recorded run",
                f"{option} and the recorded run {words[0]}",
                "a model and texts",
                f"omit {option}",
            )
        return None
    model, rest = _split(words)
    if lines:
        if len(rest) > 1 or (rest and Path(rest[0]).is_dir()):
            raise refuse(
                "look",
                "--lines reads one file",
                " ".join(rest),
                "one file with a text on each line, or - for standard input",
                "omit --lines: every file is then one text",
            )
        return Several(model, _lines(rest[0] if rest else None))
    if (len(rest) > 1 and any(map(exists, rest))) or any(map(_has_texts, rest)):
        _check_files(rest)
        paths = [path for word in rest for path in _paths(Path(word).expanduser())]
        return Several(model, paths)
    if as_json and not rest and model is not None:
        raise refuse(
            "look",
            "--json needs a text",
            f"--json and the model {model}",
            "a text, text files, or a folder of .txt files after the model",
            f'pass a text: regard look {model} "…" --json',
        )
    if as_json and len(rest) <= 1:
        text = read_text("look", rest[0] if rest else None)
        name = rest[0] if rest and exists(rest[0]) else " ".join(text.split())[:60]
        return Several(model, [(name, text)])
    return None


def detect(
    given: Several,
    measures: Mapping[str, Expr],
    layers: Sequence[int | str] | None,
    limit: int | str,
    *,
    as_json: bool,
) -> None:
    """Runs the model on one text after another, and prints what every head does."""
    from ..lens.detection import detect_heads
    from ..lens.terminal import head_table

    with Console(stderr=True).status("running the model") as status:

        def counted() -> Iterator[Path | tuple[str, str]]:
            for number, text in enumerate(given.texts, 1):
                status.update(f"text {number} of {len(given.texts)}")
                yield text

        found = detect_heads(given.model, counted(), measures=measures, layers=layers, limit=limit)
    if as_json:
        emit_json(found.to_json())
    else:
        head_table(Console(), found)


def check_unused(options: Mapping[str, Any]) -> None:
    """Refuses options of a page or of a single run, all at once."""
    refuse_all(
        "look",
        [
            Reason(
                f"{name} has no effect on the detectors of many texts",
                name if value is True else f"{name} {value}",
                ", ".join(USED[:-1]) + f" and {USED[-1]}",
                f"omit {name}, or pass one text without --json",
            )
            for name, value in options.items()
            if name not in USED
        ],
    )


def _split(words: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """The model and the texts. The first word is the model unless it is a text file or a folder of texts, or alone."""
    if not words:
        return None, ()
    first = Path(words[0]).expanduser()
    is_text = exists(words[0]) and (first.is_file() or _has_texts(words[0])) and not is_trained(words[0])
    alone = len(words) == 1 and not is_trained(words[0])
    return (None, words) if is_text or alone else (words[0], words[1:])


def _has_texts(word: str) -> bool:
    """Whether a word is a folder of .txt files, and not a model or a recorded run, which may contain such files."""
    folder = Path(word).expanduser()
    if not exists(word) or not folder.is_dir() or is_run(word) or is_trained(word):
        return False
    return not (folder / "config.json").exists() and any(folder.glob(TEXTS))


def _paths(path: Path) -> list[Path]:
    return sorted(path.glob(TEXTS)) if path.is_dir() else [path]


def _check_files(words: Sequence[str]) -> None:
    """Refuses words that are not text files or folders of text files, all at once."""
    refuse_all(
        "look",
        [
            Reason(
                "not a text file",
                f"{word}: {'a folder without .txt files' if exists(word) else 'no such file'}",
                "text files, or folders of .txt files",
                "check the path; put a text in quotes to show it alone",
            )
            for word in words
            if not exists(word) or (Path(word).expanduser().is_dir() and not _has_texts(word))
        ],
    )


def _lines(word: str | None) -> list[tuple[str, str]]:
    """The lines of a file that are not blank, each with the name of the file and its number."""
    lines = read_text("look", word).split("\n")
    name = "line " if word in (None, "-") else f"{word}:"
    return [(f"{name}{number}", line.rstrip("\r")) for number, line in enumerate(lines, 1) if line.strip()]
