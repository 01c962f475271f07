"""Arguments of commands: a text, a file or standard input; a model in a Python file, named as FILE.py:NAME."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..common.errors import Refused, first_line, refuse
from ..lens.text_or_path import is_path


def read_text(command: str, word: str | None) -> str:
    """The text: an argument, the content of a file, or standard input."""
    if word is None and sys.stdin.isatty():
        raise refuse(command, "no text", "no argument", "a text", "pass a text in quotes, or a text file")
    path = Path(word or "-").expanduser()
    if word is None or word == "-":
        raw, source = sys.stdin.buffer.read(), "standard input"
    elif is_path(word, command):
        try:
            raw, source = path.read_bytes(), word
        except OSError as error:
            fix = (
                "pass a text after the model folder"
                if path.is_dir()
                else "check the path; pass a text that resembles a path through standard input: -"
            )
            raise refuse(
                command, "the file cannot be read", f"{word}: {error.strerror}", "a text file, or a text", fix
            ) from error
    else:
        raw, source = word.encode("utf-8", "surrogateescape"), "the argument"
    try:
        words = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise refuse(
            command,
            "the text is not UTF-8",
            f"byte {error.start} of {source}",
            "UTF-8",
            "convert it to UTF-8, for example with iconv",
        ) from error
    if not words.strip():
        raise refuse(command, "no text", f"{source} contains no words", "a text", "pass some words")
    return words


if TYPE_CHECKING:
    import torch

TOKENS = 16  # positions of inputs that are made here
Inputs = Annotated[
    str | None,
    typer.Option(
        metavar="<name>",
        help="For FILE.py:CLASS: what its forward takes, a tensor, tuple or dict in the file, or a function that "
        "returns one.",
        show_default="random",
    ),
]


def is_own(name: str | None) -> bool:
    """Whether the name of a model is one in a Python file.

    >>> is_own("mine.py:GPT"), is_own("gpt2"), is_own(None)
    (True, False, False)
    """
    return name is not None and re.fullmatch(r".+\.py:[\w.]+", name) is not None


def own_model(where: str, name: str, inputs: str | None) -> tuple[torch.nn.Module, Any]:
    """The module, in evaluation mode, and its inputs.

    where: the command · name: as FILE.py:NAME · inputs: the name of a tensor, tuple or dict, or of a function that
    returns one, as FILE.py:NAME or NAME in the same file; None: those that the function of the model returns beside it,
    the attribute `example_input_array` of the module, or random ones that its forward accepts
    """
    model, given = own_module(where, name, inputs)
    return model, _accepted(where, model) if given is None else given


def own_module(where: str, name: str, inputs: str | None) -> tuple[torch.nn.Module, Any]:
    """The module, in evaluation mode, and its inputs as in `own_model`, or None where nothing names them."""
    import torch

    found = _value(name)
    given: Any = None
    if not isinstance(found, torch.nn.Module) and callable(found):
        found = found()
    if isinstance(found, tuple) and len(found) == 2:
        found, given = found
    if not isinstance(found, torch.nn.Module):
        raise refuse(
            where,
            f"{name} is not a model",
            type(found).__name__,
            "a class of modules that takes no arguments, a module, or a function that returns a module, or a "
            "module and its inputs",
            "write a function without parameters that makes the model, and name it",
        )
    if inputs is not None:
        given = _value(inputs if is_own(inputs) else f"{name.rpartition(':')[0]}:{inputs}")
        given = given() if callable(given) and not isinstance(given, torch.Tensor) else given
    return found.eval(), getattr(found, "example_input_array", None) if given is None else given


def refuse_inputs(where: str, model: str | None, inputs: str | None) -> None:
    """Raises `Refused` for inputs of a model that is not in a Python file."""
    if inputs is not None and not is_own(model):
        raise refuse(
            where,
            "--inputs is for models in Python files",
            f"--inputs {inputs} for {model or 'the default model'}",
            "FILE.py:CLASS and --inputs",
            "omit --inputs, or pass a text",
        )


def _value(name: str) -> Any:
    """What a file defines under a name; an instance, if it is a class."""
    from ..conformance.process.target import Target

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
