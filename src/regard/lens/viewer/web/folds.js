// Parts of the page that are folded under a word until they are opened, which the page remembers.

const remembering = { // also for the next page, if the browser lets a page keep anything
  name: "regard-open",
  read() {
    try { return localStorage.getItem(this.name)?.split(",").filter(Boolean) ?? []; } catch { return []; }
  },
  write(open) {
    try { localStorage.setItem(this.name, open.join(",")); } catch { /* it is remembered by the address alone */ }
  },
};

const opened = GIVEN > 1 ? ["compare"] : remembering.read();
choosable("open", opened, { // the names of the open parts
  write: (open) => (open.join() === opened.join() ? undefined : open.join() || "none"),
  read: (text) => (/^[a-z,]{1,80}$/.test(text) ? text.split(",").filter((name) => folds.boxes.has(name)) : undefined),
});

const folds = {
  name: "folds", boxes: new Map(),

  /** A part of this name with a title, folded: a <details> element. */
  make(name, title, ...content) {
    const box = element("details", undefined, { className: "fold", id: `${name}-fold` }, element("summary", undefined, {}, element("h2", title, { id: `${name}-title` })), ...content);
    box.addEventListener("toggle", () => {
      if (box.open === state.open.includes(name)) return;
      const open = box.open ? [...state.open, name] : state.open.filter((each) => each !== name);
      remembering.write(open);
      choose({ open });
    });
    this.boxes.set(name, box);
    return box;
  },

  draw(changed) {
    if (changed.has("open")) for (const [name, box] of this.boxes) box.open = state.open.includes(name);
  },
};
screens.push(folds);
// A menu closes when something else is clicked.
addEventListener("click", ({ target }) => { for (const menu of document.querySelectorAll("details.menu[open]")) if (!menu.contains(target)) menu.open = false; });

/** Fetches the data of a part of the page when it is opened, and again after its content has changed. */
class Lazily {
  static following = new Set(); // those that fetch now

  /** box: a <details> element; nothing is fetched while it is closed. */
  constructor(box, fetch) {
    Object.assign(this, { box, fetch, stale: true });
    box.addEventListener("toggle", () => this.look());
  }

  /** Marks the shown data as outdated. */
  again() {
    this.stale = true;
    return this.look();
  }

  async look() {
    if (!this.box.open || !this.stale) return;
    this.stale = false;
    Lazily.following.add(this);
    try { await this.fetch(); } finally { Lazily.following.delete(this); }
  }
}
