"""What every visual must do in its page: keep within the window at any width, and break no rule of axe-core; and what
its matrices show.
"""

import numpy as np

from tests.support.axe import violations

__all__ = ["fits_and_is_accessible", "opacities"]


def fits_and_is_accessible(shown, kind, **data):
    """Opens a visual at a phone's width and at a desk's, and judges each page."""
    for width in (360, 1000):
        view = shown(kind, _context={"bypass_csp": True, "viewport": {"width": width, "height": 900}}, **data)
        wide = view.tab.evaluate("document.documentElement.scrollWidth")
        assert wide <= width, f"{wide} pixels in a window of {width}"
        assert not (found := violations(view.tab)), found


def opacities(view, at=0) -> np.ndarray:
    """The opacity of each cell of a matrix, of the visual's matrices the one at a place."""
    found = view.tab.evaluate(
        """(at) => {
            const node = document.querySelectorAll("canvas")[at];
            const copy = new OffscreenCanvas(node.width, node.height).getContext("2d");
            copy.drawImage(node, 0, 0);
            const { data } = copy.getImageData(0, 0, node.width, node.height);
            return [node.height, node.width, [...data].filter((_, place) => place % 4 === 3)];
        }""",
        at,
    )
    return np.reshape(found[2], found[:2]) / 255
