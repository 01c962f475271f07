"""The page of a run: one HTML file or a server of one; the same script asks the same questions of both."""

from .html import json_for_html, page, policy

__all__ = ["json_for_html", "page", "policy"]
