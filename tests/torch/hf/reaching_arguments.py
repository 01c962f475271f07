"""Which arguments reach the attention of a model, read from the code of transformers: no model runs.

A `forward` passes on to its parts what it was given and does not name (**kwargs), and what it adds to that. Followed
from a model down to the call of the attention function, these are the names that arrive there.
"""

import ast
import functools
import inspect
import textwrap
from typing import NamedTuple

import torch
import transformers
from torch import nn

from regard.torch.hf.tiny_models import families, model_class, tiny_config


class Passes(NamedTuple):
    """What one `forward` names and removes, what it adds to its **kwargs, and whom it passes them on to."""

    named: frozenset[str]
    added: frozenset[str]
    calls: tuple[tuple[str, frozenset[str]], ...]


def reaching(name: str) -> dict[str, str]:
    """The names that reach attention in one architecture, and one path of each; raises if it cannot be built."""
    kind = model_class(name)
    with torch.device("meta"):
        model = kind._from_config(tiny_config(families()[name][1]), attn_implementation="eager")
    found: dict[str, str] = {}
    for part in model.modules():
        if isinstance(part, transformers.PreTrainedModel):
            follow(part, frozenset(), found, set(), type(part).__name__)
    return found


def follow(module, given: frozenset[str], found: dict[str, str], seen: set, path: str) -> None:
    """Adds to `found` what arrives at attention if `module` is called with the names `given`."""
    passes = read(type(module))
    if passes is None or (type(module), given) in seen:
        return
    seen.add((type(module), given))
    left = (given - passes.named) | passes.added
    for text, names in passes.calls:
        if "attention_interface" in text:
            found.update({name: path for name in left | names if name not in found})
        for part in called(module, text):
            follow(part, left | names, found, seen, f"{path}.{text.removeprefix('self.')}")


@functools.cache
def read(kind: type) -> Passes | None:
    """The `forward` of a class; None if it passes nothing on."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(kind.forward)))).body[0]
    except (OSError, TypeError):
        return None
    if not isinstance(tree, ast.FunctionDef) or tree.args.kwarg is None:
        return None
    rest = tree.args.kwarg.arg
    named = {each.arg for each in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs)}
    added, calls, loops = set(), [], {}
    for node in ast.walk(tree):
        if isinstance(node, ast.For):  # for layer in self.layers[:n]: layer(…)
            over = [ast.unparse(part) for part in ast.walk(node.iter) if isinstance(part, ast.Attribute)]
            loops |= {part.id: over for part in ast.walk(node.target) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith(f"{rest}["):
            added.add(ast.literal_eval(node.targets[0].slice))
        elif isinstance(node, ast.Call):
            text = ast.unparse(node.func)
            if text == f"{rest}.pop":
                named.add(ast.literal_eval(node.args[0]))
            if any(part.arg is None and ast.unparse(part.value) == rest for part in node.keywords):
                calls.append((text, frozenset(part.arg for part in node.keywords if part.arg)))
    texts = [(each, names) for text, names in calls for each in loops.get(text, [text])]
    return Passes(frozenset(named), frozenset(added), tuple(texts))


def called(module, text: str) -> list[nn.Module]:
    """The parts that the text of a call means, such as self.layers or self.model.decoder."""
    found = module
    for step in text.split(".")[1:] if text.startswith("self.") else ["not a part"]:
        found = getattr(found, step.split("[")[0], None)
    if isinstance(found, nn.ModuleList | nn.Sequential):
        return list(found)
    if isinstance(found, nn.ModuleDict):
        return list(found.values())
    return [found] if isinstance(found, nn.Module) else []
