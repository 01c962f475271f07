"""`regard generate`: a trained language model goes on from a prompt, shown as it writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import refuse
from .progress import needs

__all__ = ["generate"]


def generate(
    folder: Annotated[Path, typer.Argument(help="The folder of a model that regard train made.", show_default=False)],
    prompt: Annotated[
        str | None,
        typer.Argument(help="The text to go on from; - reads it from standard input.", show_default="a new text"),
    ] = None,
    *,
    tokens: Annotated[int, typer.Option(help="At most so many new tokens.")] = 200,
    n: Annotated[int, typer.Option("-n", "--batch", help="So many continuations of the prompt.")] = 1,
    temperature: Annotated[float, typer.Option(help="Below 1 safer, above 1 wilder.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(help="Choose among so many.", show_default="all")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Choose among those that share this probability.", show_default="all")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Choose among those of at least this part of the best.", show_default="all")
    ] = None,
    greedy: Annotated[bool, typer.Option("--greedy", help="Always take the most probable.")] = False,
    stop: Annotated[list[str] | None, typer.Option(help="End behind this text; may be given several times.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="The same seed writes the same text.", show_default="another each time")
    ] = None,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
) -> None:
    """Write with a trained model."""
    given = _prompt(prompt)
    if n < 1:
        raise refuse("generate", "no continuations", given=f"-n {n}", expected="1 or more", fix="raise it")
    needs("generate", "torch", "safetensors")

    from ..models import stream
    from ..models.data.vocabulary import Decoder
    from ..models.training import checkpoint
    from ..models.training.loop import check_device

    check_device(device, "generate")
    saved = checkpoint.load(folder, "generate", device)
    if saved.kind != "LanguageModel":
        raise refuse(
            "generate",
            "the model does not write",
            given=f"{folder} holds a {saved.kind}",
            expected="a language model",
            fix="train one with regard train",
        )
    vocabulary = saved.vocabulary
    begin = vocabulary.encode(given).tolist() or [vocabulary.end]
    written = stream(
        saved.model,
        [begin] * n,
        tokens=tokens,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        greedy=greedy,
        seed=seed,
        stop=[*(stop or []), [vocabulary.end]],
        decode=lambda some: vocabulary.spell(some).decode(errors="replace"),
    )
    decoders = [Decoder(vocabulary) for _ in range(n)]
    texts = [given] * n
    _show(_title(1, n) + given)
    for number, token in written:
        more = decoders[number].more([token])
        texts[number] += more
        if number == 0:  # the first is shown as it comes, the others when it is done
            _show(more)
    _show(decoders[0].rest() + "\n")
    for number in range(1, n):
        _show(f"{_title(number + 1, n)}{texts[number]}{decoders[number].rest()}\n")


def _show(text: str) -> None:
    if sys.stdout.isatty():  # what a model makes up must not steer the terminal
        text = "".join(letter if letter.isprintable() or letter in "\n\t" else "�" for letter in text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _title(number: int, n: int) -> str:
    return f"{'' if number == 1 else chr(10)}── {number} of {n} ──\n" if n > 1 else ""


def _prompt(prompt: str | None) -> str:
    """The text to go on from."""
    if prompt == "-":
        raw, source = sys.stdin.buffer.read(), "standard input"
    else:
        raw, source = (prompt or "").encode("utf-8", "surrogateescape"), "the prompt"
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise refuse(
            "generate",
            "the prompt is not UTF-8",
            given=f"byte {error.start} of {source}",
            expected="UTF-8",
            fix="convert it, with iconv for example",
        ) from error
