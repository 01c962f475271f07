"""A reader of the course in a real browser."""

from tests.support.browser import listened


class Reader:
    """One tab of a reader, and what the page said to the console."""

    def __init__(self, context, base):
        self.tab, self.base = context.new_page(), base
        self.said = listened(self.tab)

    def open(self, name):
        self.tab.goto(self.base + name)
        return self.ready()

    def ready(self):
        self.tab.wait_for_selector("html[data-ready]", state="attached")
        return self

    def answer(self, name, text):
        self.tab.fill(f"#{name} .typed", text)
        self.tab.press(f"#{name} .typed", "Enter")

    def text(self, selector):
        return self.tab.inner_text(selector)

    def appears(self, selector, text=""):
        self.tab.locator(selector, has_text=text).first.wait_for(timeout=20_000)

    def visible(self, selector):
        return self.tab.is_visible(selector)

    def until(self, script):
        for _ in range(400):  # the page's policy forbids what Playwright's own waiting does
            if self.tab.evaluate(script):
                return
            self.tab.wait_for_timeout(50)
        raise AssertionError(script)
