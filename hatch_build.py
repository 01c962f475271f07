"""Metadata of the package that is made when it is built: the addresses, and the README with links that work anywhere.

A package index shows the README without the repository, so that links to files become links to pages of the site, whose
address is SITE. Of a link to any other file the text remains.
"""

import re
from pathlib import Path

from hatchling.metadata.plugin.interface import MetadataHookInterface

SITE = "https://regard.example"  # a placeholder until the documentation has an address
# Files of the repository that are pages of the site.
PAGES = {"CHANGELOG.md": "project/changelog.html", "CONTRIBUTING.md": "project/contributing.html"}


class Metadata(MetadataHookInterface):
    """Hatch calls `update` before it writes the metadata."""

    def update(self, metadata: dict) -> None:
        """Sets the README and the addresses."""
        root = Path(self.root)
        text = (root / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_addresses(text, SITE)}
        metadata["urls"] = {
            "Documentation": SITE,
            "Changelog": f"{SITE}/{PAGES['CHANGELOG.md']}",
        }


def with_addresses(text: str, site: str) -> str:
    """The README with links to pages of the site in the place of links to files."""

    def address(found: re.Match) -> str:
        mark, words, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        if target in PAGES:
            return f"{mark}[{words}]({site}/{PAGES[target]})"
        if not target.startswith("docs/"):
            return words
        return f"{mark}[{words}]({site}/{re.sub(r'[.]md$', '.html', target.removeprefix('docs/'))})"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)]+)\)", address, text)
