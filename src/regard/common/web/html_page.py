"""Self-contained pages: a template filled in one pass, data that cannot end its element, and hashes for a policy."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

COMMENT = re.compile(r"""\s+// [^"'`]*$""")  # after code
HEAD = files(__package__).joinpath("head.html").read_text("utf-8")
BLOCK = re.compile(r"^\s*/\*((?!\*/).)*\*/[ \t]*$", re.MULTILINE | re.DOTALL)  # on lines of its own


def json_for_html(data: Any) -> str:
    r"""JSON that cannot end the script element that contains it, nor start another one.

    >>> json_for_html("</script>\u2028&")
    '"\\u003c/script\\u003e\\u2028\\u0026"'
    """
    return json.dumps(data, allow_nan=False).translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"})


def filled(template: str, parts: Mapping[str, str]) -> str:
    """The template with its names in double braces replaced, in one pass: braces in the parts are never interpreted.
    {{head}} is how every page begins.

    >>> filled("<p>{{text}}</p>", {"text": "{{text}}"})
    '<p>{{text}}</p>'
    """
    first, *rest = template.replace("{{head}}", HEAD).split("{{")
    made = [first]
    for piece in rest:
        name, after = piece.split("}}", 1)
        made += [parts[name], after]
    return "".join(made)


def hashed(text: str) -> str:
    """The source of a content security policy that allows this script or style alone."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def stripped(code: str) -> str:
    """The lines of a file without indentation and without comments, which are a sixth of a script.

    A comment after code stays if it contains a quotation mark: the two slashes may be a part of a string.
    """
    lines = [COMMENT.sub("", line.strip()) for line in BLOCK.sub("", code).splitlines()]
    return "\n".join(line for line in lines if line and not line.startswith("//"))
