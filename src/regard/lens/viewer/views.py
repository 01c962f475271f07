"""The views of the page, in the order in which they stand on it, and the files that they are made of.

A new view is a row of `VIEWS` here, `web/views/NAME.js` and `web/views/NAME.css`. Its script puts an object into
`screens` (state.js says what that has to do), and brings what it adds to the state, the address and the keys.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SCRIPTS", "STYLES", "VIEWS", "sections"]


class View(NamedTuple):
    """place: above or below the main part, or in it · hidden: until its script has something to show · parts: further
    scripts, of which other views may use some.
    """

    name: str
    place: str
    hidden: bool = False
    parts: tuple[str, ...] = ()


VIEWS = (
    View("findings", "above", hidden=True),
    View("steps", "above", hidden=True),
    View("atlas", "main", parts=("atlas/metrics", "atlas/thumbnails", "atlas/headtable")),
    View(
        "map",
        "main",
        parts=(
            "plot/tiles",
            "plot/axes",
            "plot/cellmarks",
            "plot/plot",
            "plot/measure",
            "plot/drive",
            "plot/minimap",
            "plot/difference",
        ),
    ),
    View(
        "reader",
        "main",
        parts=(
            "reader/lines",
            "reader/flow",
            "reader/reading",
            "reader/strongest",
            "reader/find",
            "reader/patches",
            "reader/walked",
            "reader/cells",
        ),
    ),
    View("compare", "below", hidden=True),
    View("pair", "below"),
    View("walk", "below"),
)

# In the order in which they run: what all views use, their parts, the views, and what uses them.
SCRIPTS = (
    *("base", "source", "state", "legend"),
    *(part for view in VIEWS for part in view.parts),
    *(f"views/{view.name}" for view in VIEWS),
    *("figure", "share", "keys", "main"),
)
STYLES = ("page", *(f"views/{view.name}" for view in VIEWS))


def sections(place: str) -> str:
    """The sections of the views at this place, which their scripts fill."""
    return "\n".join(
        f'<section id="{view.name}" aria-labelledby="{view.name}-title"{" hidden" * view.hidden}></section>'
        for view in VIEWS
        if view.place == place
    )
