"""`regard generate`: generates text with a trained language model and streams it to standard output."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from ..common.errors import refuse
from ..common.optional import needs
from .arguments import flag, option, typed_text
from .terminal import emit_json


def generate(
    folder: Annotated[Path, typer.Argument(help="Folder of a model trained with regard train.", show_default=False)],
    prompt: Annotated[
        str | None,
        typer.Argument(help="Text to continue; - reads standard input.", show_default="empty"),
    ] = None,
    *,
    tokens: Annotated[int, option("Maximum number of new tokens.")] = 200,
    n: Annotated[int, typer.Option("-n", "--batch", help="Number of continuations.")] = 1,
    temperature: Annotated[float, option("Divisor of the logits: lower is less random, higher is more random.")] = 1.0,
    top_k: Annotated[int | None, option("Sample from the K most probable tokens.", "all")] = None,
    top_p: Annotated[
        float | None,
        option("Sample from the fewest tokens with total probability P.", "all"),
    ] = None,
    min_p: Annotated[
        float | None,
        option("Sample from tokens at least P times as probable as the most probable one.", "all"),
    ] = None,
    greedy: Annotated[bool, flag("--greedy", "Always choose the most probable token.")] = False,
    stop: Annotated[list[str] | None, option("Stop after this text. Can be repeated.")] = None,
    seed: Annotated[int | None, option("Random seed, for reproducible output.", "random")] = None,
    device: Annotated[str, option("Device: cpu or cuda.")] = "cpu",
    as_json: Annotated[bool, flag("--json", "Print the prompt and all texts as JSON.")] = False,
) -> None:
    """Generate text with a trained language model."""
    given, _ = typed_text("generate", prompt or "", "the prompt")
    if n < 1:
        raise refuse("generate", "-n is too small", f"-n {n}", "1 or more", "pass a positive number")
    needs("generate", "train", "torch", "safetensors")

    from ..models import stream
    from ..models.data.vocabulary import Decoder
    from ..models.training import checkpoint
    from ..models.training.loop import check_device

    check_device(device, "generate")
    saved = checkpoint.load(folder, "generate", device)
    if saved.kind != "LanguageModel":
        raise refuse(
            "generate",
            "not a language model",
            f"{folder} contains a {saved.kind}",
            "a language model",
            "train one with regard train",
        )
    vocabulary = saved.vocabulary
    begin = vocabulary.encode(given).tolist() or [vocabulary.end]
    generated = stream(
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
        decode=lambda new: vocabulary.spell(new).decode(errors="replace"),
    )
    decoders = [Decoder(vocabulary) for _ in range(n)]
    texts = [given] * n
    if not as_json:
        _show(_title(1, n) + given)
    for number, token in generated:
        more = decoders[number].more([token])
        texts[number] += more
        if number == 0 and not as_json:  # the first continuation is streamed, the others are shown at the end
            _show(more)
    if as_json:
        texts = [text + decoder.rest() for text, decoder in zip(texts, decoders)]
        emit_json({"prompt": given, "texts": texts})
        return
    _show(decoders[0].rest() + "\n")
    for number in range(1, n):
        _show(f"{_title(number + 1, n)}{texts[number]}{decoders[number].rest()}\n")


def _show(text: str) -> None:
    if sys.stdout.isatty():  # generated control characters must not reach the terminal
        text = "".join(each if each.isprintable() or each in "\n\t" else "�" for each in text)
    sys.stdout.write(text)
    sys.stdout.flush()


def _title(number: int, n: int) -> str:
    return f"{'' if number == 1 else chr(10)}── {number} of {n} ──\n" if n > 1 else ""
