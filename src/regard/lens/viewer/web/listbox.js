// A list of which one entry may be chosen, by a click or with the arrow keys: one stop of the Tab key.

class ListBox {
  keyed = true; // whether the keys choose, too

  /** choose(place): what happens when the entry at this place is chosen. */
  constructor(id, choose) {
    Object.assign(this, { choose, chosen: -1 });
    this.node = element("div", undefined, { id, tabIndex: 0, role: "listbox" });
    this.node.addEventListener("click", ({ target }) => {
      const place = target.closest("[data-place]")?.dataset.place;
      if (place !== undefined) choose(Number(place));
    });
    this.node.addEventListener("keydown", (event) => {
      const by = stepOf(event, { ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, PageDown: 8, PageUp: -8, Home: -Infinity, End: Infinity });
      if (by !== undefined) this.go(by);
    });
  }

  /** Chooses the entry so many places further on. */
  go(by) { if (this.keyed && this.count) this.choose(clamp(this.chosen < 0 ? 0 : this.chosen + by, 0, this.count - 1)); }

  /** Shows entries, each a list of nodes; chosen: the place of the chosen one, -1 for none. Returns the entries. */
  show(entries, chosen, after = []) {
    Object.assign(this, { chosen, count: entries.length });
    const made = entries.map((nodes, place) => {
      const entry = element("div", undefined, { className: "entry", id: `${this.node.id}-${place}`, role: "option", ariaSelected: String(place === chosen), ariaSetSize: String(entries.length), ariaPosInSet: String(place + 1) }, ...nodes);
      entry.dataset.place = place;
      return entry;
    });
    this.node.replaceChildren(...made, ...after);
    if (chosen < 0) this.node.removeAttribute("aria-activedescendant");
    else this.node.setAttribute("aria-activedescendant", made[chosen].id);
    return made;
  }
}
