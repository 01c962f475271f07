"""Chromium, for the tests of the page: where it is, and how it is had where it is not.

`make test` calls `python -m tests.support.chromium`, which installs one where it can. Where it cannot, the tests of the
page are left out, and pytest says how many there were; in CI that is an error (conftest.py).
"""

import glob
import os
import shutil
import subprocess
import sys

NAMES = ("chromium", "chromium-browser", "google-chrome")
# Where `playwright install chromium` puts its own, on Linux and macOS.
DOWNLOADS = os.environ.get("PLAYWRIGHT_BROWSERS_PATH") or os.path.expanduser(
    "~/Library/Caches/ms-playwright" if sys.platform == "darwin" else "~/.cache/ms-playwright"
)
DOWNLOADED = ("chromium-*/chrome-linux*/chrome", "chromium-*/chrome-mac*/*.app/Contents/MacOS/*")

MISSING = f"no Chromium: none of {', '.join(NAMES)} is on the PATH, and {DOWNLOADS} has none"


def found() -> str | None:
    """The program, or None."""
    downloaded = [path for pattern in DOWNLOADED for path in sorted(glob.glob(os.path.join(DOWNLOADS, pattern)))]
    return next(filter(None, map(shutil.which, [*NAMES, *downloaded[-1:]])), None)


CHROMIUM = found()

# The first of these that this machine has, as root; then Playwright's own download, as anybody. (That one was written
# from its manual: it has not been tried on a machine without a network of its own.)
PACKAGES = {
    "apt-get": ("apt-get update", "apt-get install -y --no-install-recommends chromium"),
    "dnf": ("dnf install -y chromium",),
    "apk": ("apk add chromium",),
}


def install() -> str | None:
    """Installs Chromium if it can; returns where it is then."""
    manager = next(filter(shutil.which, PACKAGES), None)
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    ways = [*([PACKAGES[manager]] if root and manager else []), (f"{sys.executable} -m playwright install chromium",)]
    for commands in ways:
        print(f"Chromium, for the tests of the page: {' && '.join(commands)}", flush=True)
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        for command in commands:
            if subprocess.run(command.split(), env=environment, capture_output=True, check=False).returncode:
                break
        if path := found():
            return path
    return None


if __name__ == "__main__" and CHROMIUM is None and install() is None:
    print(f"{MISSING}, and installing it failed: the tests of the page are left out (pytest counts them at its end)")
