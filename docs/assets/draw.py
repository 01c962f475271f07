"""Draws the three figures of the README from real output: `python docs/assets/draw.py` (needs the extras look and dev).

plan.png: what `rg.explain` prints · finding.png: what `rg.audit` finds in a model with a planted fault · page.png: the
page of `regard look`, in Chromium.
"""

import html
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from playwright.sync_api import sync_playwright

import regard as rg

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent))
from tests.support.chromium import CHROMIUM  # noqa: E402, the line above makes it importable

TERMINAL = """<meta charset="utf-8"><body style="margin:0;display:inline-block;background:#0d1117">
<pre style="margin:0;padding:20px 24px;color:#e6edf3;font:14px/1.35 'DejaVu Sans Mono',monospace">{}</pre></body>"""
TEXT = "The animal didn't cross the street because it was too tired."


def plan() -> str:
    """The explanation of a call over three packed documents with a sliding window."""
    q, k, v = np.zeros((3, 8, 4096, 64), np.float32)
    mask = rg.causal() & rg.window(1024) & rg.documents(lengths=[1536, 512, 2048])
    command = (
        ">>> print(rg.explain(q, k, v, mask=rg.causal() & rg.window(1024) & rg.documents(lengths=[1536, 512, 2048])))"
    )
    return f"{command}\n{rg.explain(q, k, v, mask=mask)}"


class Shifted(torch.nn.Module):
    """Attention whose causal mask is off by one."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.qkv = torch.nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(2, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        allowed = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril(1)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=allowed).transpose(1, 2).flatten(2)


def finding() -> str:
    """The first finding of an audit."""
    found = rg.audit(Shifted(), inputs=torch.randn(1, 20, 32), causal=True)
    return f">>> print(rg.audit(model, inputs=x, causal=True).findings[0])\n{found.findings[0]}"


def wrapped(text: str, width: int = 118) -> str:
    """The text with long lines broken as a terminal breaks them, continued under their first word."""
    lines = []
    for line in text.split("\n"):
        while len(line) > width:
            cut = line.rfind(" ", 0, width)
            lines.append(line[:cut])
            line = " " * 12 + line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    """Writes the three files."""
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for name, text in (("plan", plan()), ("finding", finding())):
            page = browser.new_page(viewport={"width": 1100, "height": 300}, device_scale_factor=1.5)
            page.set_content(TERMINAL.format(html.escape(wrapped(text))))
            page.locator("body").screenshot(path=HERE / f"{name}.png")
        path = Path(folder) / "page.html"
        subprocess.run([sys.executable, "-m", "regard", "look", TEXT, "--out", str(path)], check=True)
        page = browser.new_page(viewport={"width": 1280, "height": 800}, device_scale_factor=1.5)
        page.goto(path.as_uri())
        page.wait_for_timeout(1500)
        page.screenshot(path=HERE / "page.png")
        browser.close()


if __name__ == "__main__":
    main()
