"""The visual of a sentence: its weights are those of the chapter's code, for what the reader types."""

import numpy as np

from regard.learn.source import chapters


def test_a_typed_sentence_has_the_weights_of_the_code(shown):
    """Words, an emoji and one word too many; without a word there is no figure."""
    typed = "Łódź naïve 👍 a b c d e f g h i j"
    reveal = chapters()[1].part("your-sentence")
    names = {"input": lambda asks: typed}
    exec(reveal.code, names)
    view = shown("sentence", sentence="no")
    view.tab.fill("input", typed)
    view.change(row=2, column=1)
    assert view.tab.inner_text("p[role=status]").startswith("“👍” looks at “naïve”")
    for row, column in np.ndindex(12, 12):
        view.change(row=row, column=column)
        view.near({"weight": names["weights"][row, column]})
    view.tab.fill("input", " ")
    assert view.tab.locator("canvas").count() == 0
