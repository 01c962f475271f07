"""The scripts of visuals on a page: every kind is there, and no other name is. (That each draws: its own tests.)"""

from regard.common.web import visuals


def test_a_page_sees_visuals_and_no_other_name_of_their_scripts(chromium):
    """Scripts of the viewer have a `draw`, a `place` and a `controls` of their own."""
    tab = chromium.new_page()
    tab.set_content(f"<script>const draw = 1;</script><script>{visuals.script(visuals.KINDS)}</script>")
    assert tab.evaluate("Object.keys(visuals).sort()") == sorted(visuals.KINDS)
    assert tab.evaluate("draw") == 1
    assert tab.evaluate("typeof make + typeof place + typeof dot") == "undefined" * 3
    tab.close()


def test_a_page_has_the_styles_of_its_kinds_alone():
    """None without kinds."""
    assert ".softmax-" in visuals.style(["softmax"])
    assert ".softmax-" not in visuals.style([])
