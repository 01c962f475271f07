"""The map of an open page, driven through the mouse and read through its pixels and words."""

DIGITS = 0.006  # three figures are shown: half of the last one, relative to the first
BEGIN = {
    "call": 0,
    "head": 0,
    "query": 0,
    "key": None,
    "pins": [],
    "scale": "log",
    "pool": "share",
    "view": None,
    "cells": None,
}


class Map:
    """The map of an open page, driven through the mouse and read through its pixels and words."""

    def __init__(self, view, plot="map.plot"):
        self.view, self.tab, self.plot = view, view.tab, plot

    def at(self, i, j):
        """Where the middle of a cell is in the window."""
        return tuple(
            self.tab.evaluate(
                """([plot, i, j]) => {
                plot = eval(plot);
                plot.canvas.scrollIntoView({ block: "center" });
                const box = plot.canvas.getBoundingClientRect(), at = plot.view();
                const x = plot.left + (j + 0.5 - at.column) * at.kx, y = plot.top + (i + 0.5 - at.row) * at.ky;
                return [box.left + x, box.top + y];
            }""",
                [self.plot, i, j],
            )
        )

    def pixel(self, i, j):
        """The colour in a cell, off its middle, where a number may stand."""
        x, y = self.tab.evaluate(
            """([plot, i, j]) => {
                plot = eval(plot);
                const at = plot.view();
                const place = [plot.left + (j + 0.25 - at.column) * at.kx, plot.top + (i + 0.25 - at.row) * at.ky];
                return place.map((x) => Math.floor(x * plot.dpr));
            }""",
            [self.plot, i, j],
        )
        return self.view.pixel(f"#{self.tab.evaluate('(plot) => eval(plot).holder.id', self.plot)} .matrix", x, y)

    def click(self, i, j, **more):
        keys = more.pop("modifiers", [])
        for key in keys:
            self.tab.keyboard.down(key)
        self.tab.mouse.click(*self.at(i, j), **more)
        for key in keys:
            self.tab.keyboard.up(key)
        self.view.settled()

    def hover(self, i, j):
        self.tab.mouse.move(*self.at(i, j))
        self.view.settled()
        self.view.settled()
        return self.view.text("#map-pointer")

    def seen(self):
        return self.tab.evaluate("(plot) => eval(plot).view()", self.plot)
