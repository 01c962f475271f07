"""The views of the page in their order, and the files of each.

To add a view, add a row to `VIEWS`, `web/views/NAME.js` and `web/views/NAME.css`. Its script adds an object to
`screens` (its interface is described in state.js), and its own state, URL parameters and keyboard shortcuts.
"""

from __future__ import annotations

from typing import NamedTuple


class View(NamedTuple):
    """A section of the page.

    place: above, main or below · hidden: hidden until its script shows it · parts: further scripts, which other views
    may use as well.
    """

    name: str
    place: str
    hidden: bool = False
    parts: tuple[str, ...] = ()


VIEWS = (
    View("live", "above", hidden=True),
    View("findings", "above", hidden=True),
    View("steps", "above", hidden=True),
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
            "plot/difference",
        ),
    ),
    View("atlas", "main", parts=("atlas/metrics", "atlas/thumbnails", "atlas/headtable")),
    View("lines", "below", parts=("lines/window",)),
    View(
        "compare",
        "below",
        parts=("compare/alignment", "compare/merged", "compare/place", "compare/lists"),
    ),
    View(
        "walk",
        "below",
        parts=("walk/stages", "walk/terms", "walk/matrices", "walk/numbers"),
    ),
)

# In the order in which they run: common scripts, the parts of views, the views, and scripts that use the views.
SCRIPTS = (
    *("base", "tokens", "source", "means", "heads", "state", "folds", "legend"),
    *(part for view in VIEWS for part in view.parts),
    *(f"views/{view.name}" for view in VIEWS),
    *("figure", "share", "keys"),
)
SHARED = ("button", "draw", "make", "stepOf")  # functions of the visuals that the page calls itself
STYLES = ("page", *(f"views/{view.name}" for view in VIEWS))


def sections(place: str) -> str:
    """The <section> elements of the views at this place, which their scripts fill."""
    return "\n".join(
        f'<section id="{view.name}" aria-labelledby="{view.name}-title"{" hidden" * view.hidden}></section>'
        for view in VIEWS
        if view.place == place
    )
