"""Options and arguments of commands: a text, a file, standard input; a model in a Python file: FILE.py:NAME."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import Refused, first_line, refuse
from ..lens.text_or_path import is_path

if TYPE_CHECKING:
    import torch

TOKENS = 16  # positions of inputs that are made here


def option(help: str, default: str | bool = True, **more: Any) -> Any:
    """An option with its help, and with its default in words where its value is None."""
    return typer.Option(help=help, show_default=default, **more)


def flag(name: str, help: str) -> Any:
    """An option that is there or not."""
    return typer.Option(name, help=help)


def passed(context: typer.Context) -> dict[str, Any]:
    """The options that the user has passed, with their values; one that says no, such as --no-open, is not there."""
    options = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(str(parameter.name))
        if source is not None and source.name == "COMMANDLINE" and parameter.param_type_name == "option":
            options[parameter.opts[0]] = context.params[str(parameter.name)]
    return {name: value for name, value in options.items() if value is not False}


Inputs = Annotated[
    str | None,
    option(
        "For FILE.py:CLASS: what its forward takes, a tensor, tuple or dict in the file, or a function that "
        "returns one.",
        "random",
        metavar="<name>",
    ),
]


def read_text(command: str, word: str | None) -> str:
    """The text: an argument, the content of a file, or standard input."""
    if word is None and sys.stdin.isatty():
        raise refuse(command, "no text", "no argument", "a text", "pass a text in quotes, or a text file")
    if word in (None, "-") or not is_path(word, command):
        words, source = typed_text(command, word or "-", "the argument")
    else:
        path = Path(word).expanduser()
        try:
            words, source = decoded(command, path.read_bytes(), word), word
        except OSError as error:
            fix = (
                "pass a text after the model folder"
                if path.is_dir()
                else "check the path; pass a text that resembles a path through standard input: -"
            )
            raise refuse(
                command, "the file cannot be read", f"{word}: {error.strerror}", "a text file, or a text", fix
            ) from error
    if not words.strip():
        raise refuse(command, "no text", f"{source} contains no words", "a text", "pass some words")
    return words


def typed_text(command: str, word: str, name: str) -> tuple[str, str]:
    """An argument as text, or what is on standard input for "-"; and what it is: `name`, or "standard input"."""
    if word == "-":
        return decoded(command, sys.stdin.buffer.read(), "standard input"), "standard input"
    return decoded(command, word.encode("utf-8", "surrogateescape"), name), name


def decoded(command: str, raw: bytes, source: str) -> str:
    """Bytes as text, without a byte order mark."""
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(
            command,
            "the text is not UTF-8",
            f"byte {error.start} of {source}",
            "UTF-8",
            "convert it to UTF-8, for example with iconv",
        ) from error


# Of the commands that train. None is what the user leaves to the command, so that a resumed run can tell what changes.
Vocabulary = Annotated[int | None, option("Vocabulary size for bpe.", "2048")]
Heads = Annotated[int | None, option("Number of attention heads.", "4")]
LearningRate = Annotated[float | None, option("Maximum learning rate.", "0.001")]
Precision = Annotated[str | None, option("Precision: float32, or bfloat16 (mixed precision).", "float32")]
Seed = Annotated[int | None, option("Random seed.", "0")]
Device = Annotated[str | None, option("Device: cpu or cuda.", "cpu")]


def is_own(name: str | None) -> bool:
    """Whether the name of a model is one in a Python file.

    >>> is_own("mine.py:GPT"), is_own("gpt2"), is_own(None)
    (True, False, False)
    """
    return name is not None and re.fullmatch(r".+\.py:[\w.]+", name) is not None


def model_of(where: str, name: str | None, inputs: str | None, guess: bool = True) -> tuple[Any, Any]:
    """The model and its inputs: of a name as FILE.py:NAME the module in evaluation mode, otherwise the name and None.

    where: the command · inputs: the name of a tensor, tuple or dict, or of a function that returns one, as FILE.py:NAME
    or NAME in the same file; None: those that the function of the model returns beside it, the attribute
    `example_input_array` of the module, or, with `guess`, random ones that its forward accepts
    """
    if not is_own(name):
        if inputs is not None:
            raise refuse(
                where,
                "--inputs is for models in Python files",
                f"--inputs {inputs} for {name or 'the default model'}",
                "FILE.py:CLASS and --inputs",
                "omit --inputs, or pass a text",
            )
        return name, None
    import torch

    model = _value(str(name))
    given: Any = None
    if not isinstance(model, torch.nn.Module) and callable(model):
        model = model()
    if isinstance(model, tuple) and len(model) == 2:
        model, given = model
    if not isinstance(model, torch.nn.Module):
        raise refuse(
            where,
            f"{name} is not a model",
            type(model).__name__,
            "a class of modules that takes no arguments, a module, or a function that returns a module, or a "
            "module and its inputs",
            "write a function without parameters that makes the model, and name it",
        )
    if inputs is not None:
        given = _value(inputs if is_own(inputs) else f"{str(name).rpartition(':')[0]}:{inputs}")
        given = given() if callable(given) and not isinstance(given, torch.Tensor) else given
    if given is None:
        given = getattr(model, "example_input_array", None)
    model.eval()
    return model, _accepted(where, model) if given is None and guess else given


def _value(name: str) -> Any:
    """What a file defines under a name; an instance, if it is a class."""
    from ..conformance.target import Target

    return Target.parse(name).load(any_value=True)


def _accepted(where: str, model: torch.nn.Module) -> dict[str, Any]:
    """The first random inputs that the forward of a model accepts."""
    import torch

    errors: list[Exception] = []
    for candidate in _candidates(model):
        try:
            with torch.no_grad():
                model(**candidate)
        except Exception as error:  # the code of the model may reject an input with any error
            errors.append(error)
        else:
            return candidate
    raise refuse(
        where,
        "no inputs are known for the model",
        f"{type(model).__name__}: {first_line(errors[0]) if errors else 'its forward takes several arguments'}",
        "token ids, or rows of numbers as wide as its first layer",
        "name them: --inputs NAME, a tensor, tuple or dict in the same file, or a function that returns one",
    )


def _candidates(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """Random tensors in the shapes that the arguments and the first layers of a model suggest."""
    import torch

    from ..ledger.inputs import candidates

    tables = [each for each in model.modules() if isinstance(each, torch.nn.Embedding)]
    generator = torch.Generator().manual_seed(0)
    try:
        for shapes in candidates(model, TOKENS, 1):
            yield {
                name: torch.ones(each.shape, dtype=each.dtype)
                if "mask" in name
                else torch.randn(each.shape, generator=generator, dtype=each.dtype)
                if each.is_floating_point()
                else torch.randint(tables[0].num_embeddings if tables else 2, each.shape, generator=generator)
                for name, each in shapes.items()
            }
    except Refused:  # no form fits the arguments
        return
