"""Every visual keeps within its page at any width, in light and dark, and axe-core finds nothing."""

import pytest

from regard.common.web import visuals
from regard.learn.running import installed, run
from regard.learn.source import chapters
from tests.common.web.visuals.test_training import DATA
from tests.support.axe import violations
from tests.support.lanes import sweep

# Data of kinds that the course does not have, or trains a model for.
OWN = {"softmax": {"scores": [90.0, 1.0, -30.0]}, "training": DATA}
# What is changed in a visual, one after another, before it is judged again.
CHANGES = {
    "attention": [{"mask": "padding"}],
    "cost-curves": [{"quantity": "layers"}, {"quantity": "memory"}],
    "groups": [{"kind": "MLA"}],
    "hull": [{"mode": "dropout"}, {"mode": "difference"}],
    "layer": [{"n": 131072, "width": 8192, "heads": 64, "groups": 8}],
    "mask": [{"expression": "key < query"}, {"expression": "key <= querry & key"}],
    "overflow": [{"scores": [90.0, 1.0, -30.0]}],
    "ring": [{"ranks": 8, "tokens": 128, "layout": "striped"}],
    "streaming": [{"step": 4}],
}


def data(kind):
    """The data of the first visual of a kind in the course."""
    if kind in OWN:
        return OWN[kind]
    visual = next(part for chapter in chapters() for part in chapter.parts if getattr(part, "kind", "") == kind)
    if missing := installed(visual.needs):
        pytest.skip(missing)
    return run(visual).data


@pytest.mark.one_in(2)
@pytest.mark.parametrize("width, scheme", [(360, "light"), *sweep((1000, "dark"), (760, "light"))])
@pytest.mark.parametrize("kind", visuals.KINDS)
def test_it_fits_and_axe_finds_nothing(shown, kind, width, scheme):
    """As it is opened, after each change, and after the window has become as wide as a desk's."""
    context = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme, "bypass_csp": True}
    view = shown(kind, context, **data(kind))
    for more in view.tab.locator("summary").all():
        more.click()
    for change in [{}, *CHANGES.get(kind, [])]:
        view.change(**change)
        judge(view, width)
    view.tab.emulate_media(color_scheme="dark")
    view.tab.set_viewport_size({"width": 1000, "height": 900})
    judge(view, 1000)


def judge(view, width):
    assert view.tab.evaluate("document.documentElement.scrollWidth") <= width
    assert view.tab.evaluate(
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.visual'))"
    )
    assert violations(view.tab) == []
