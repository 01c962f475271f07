"""The documentation site builds in strict mode without network; its links, search and public names are complete."""

import os
import re
import subprocess
import sys
from html import unescape
from urllib.parse import unquote

import pytest

from regard.learn.source import chapters
from tests import ROOT

pytest.importorskip("mkdocs")
pytest.importorskip("torch")
pytestmark = pytest.mark.sweep  # builds the site for half a minute, as `make docs` does in the workflow of lint


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # its authors' notice about their next project
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "WARNING" not in done.stderr, done.stderr[-4000:]
    return folder


class Page:
    """The ids, links and loaded files of a page."""

    def __init__(self, text: str):
        self.ids = {*re.findall(r'\s(?:id|name)="([^"]+)"', text)}
        self.links = [unescape(link) for link in re.findall(r'<a\s[^>]*?href="([^"]+)"', text)]
        loaded = r'<(?:script|img|iframe|source)\s[^>]*?src="([^"]+)"'
        style = r'<link\s(?=[^>]*rel="(?:stylesheet|icon|preconnect|preload)")[^>]*?href="([^"]+)"'
        self.loads = re.findall(loaded, text) + re.findall(style, text)


@pytest.fixture(scope="module")
def pages(site):
    """Every page of the site, parsed."""
    return {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html") if path.name != "404.html"}


def test_every_link_of_the_site_leads_somewhere(site, pages):
    """Links between pages name a file that exists, and an anchor that it has."""
    broken = []
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", link):
                continue
            other = (path.parent / unquote(target)).resolve() if target else path
            if other.parent == site / "course":  # `make docs` writes the course there, once MkDocs has ended
                assert other.name in {"index.html", *(f"{chapter.path.stem}.html" for chapter in chapters())}
                continue
            if not other.is_file() or (anchor and other.suffix == ".html" and unquote(anchor) not in pages[other].ids):
                broken.append(f"{path.name}: {link}")

    assert len(pages) > 30 and sum(len(page.links) for page in pages.values()) > 1000 and broken == []


def test_the_site_loads_nothing_from_the_network(site, pages):
    """Scripts, styles, fonts and images are files of the site."""
    assert [load for page in pages.values() for load in page.loads if re.match(r"(https?:)?//", load)] == []
    assert [path for path in site.rglob("*.css") if re.search(r"url\(['\"]?https?:|@import", path.read_text())] == []


def test_every_public_name_is_on_the_site(pages):
    """The reference has an entry for every public name, with an example."""
    from tests.project.test_public_docstrings import PACKAGES, PUBLIC

    ids = set().union(*(page.ids for page in pages.values()))
    missing = [name for name in PUBLIC if not {f"{package}.{name.rpartition('.')[2]}" for package in PACKAGES} & ids]

    assert missing == []


def test_every_command_is_on_the_site(site):
    """The page of the command line has every command and option, as typer knows them."""
    import typer

    from regard.cli import app

    text = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    group = typer.main.get_command(app)

    for name, command in group.commands.items():
        assert f'id="regard-{name}"' in text
        for parameter in command.params:
            if parameter.param_type_name == "option" and parameter.name != "help":
                assert f"<code>{parameter.opts[0]}</code>" in text, (name, parameter.opts)
