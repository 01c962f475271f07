// A virtual list: rows of equal height, of which only the visible ones are in the document.

class Lines {
  /** box is the scrolling element, height that of a row in pixels, make(number) creates the element of a row. */
  constructor(box, height, make) {
    // room and top: the height and the scroll position of the box, remembered since reading them triggers layout.
    Object.assign(this, { box, height, make, count: 0, shown: new Map(), room: 0, top: 0 });
    this.sheet = element("div", null, { className: "lines", role: "presentation" });
    box.append(this.sheet);
    box.addEventListener("scroll", () => this.look(), { passive: true });
    new ResizeObserver(() => this.look()).observe(box);
  }

  /** Sets the number of rows, and creates the visible ones again. */
  reset(count) {
    if (count !== this.count) this.room = 0; // the box may become higher or lower
    this.count = count;
    this.sheet.style.height = `${count * this.height}px`;
    this.sheet.replaceChildren();
    this.shown.clear();
    this.draw();
  }

  /** Draws what is in sight now. */
  look() {
    this.room = 0;
    this.draw();
  }

  draw() {
    if (!this.room) [this.room, this.top] = [this.box.clientHeight, this.box.scrollTop];
    if (!this.room) return; // hidden: it is drawn when it is shown again
    const first = Math.max(0, Math.floor(this.top / this.height) - 3);
    const last = Math.min(this.count, Math.ceil((this.top + this.room) / this.height) + 3);
    for (const [number, node] of this.shown) {
      if (number >= first && number < last) continue;
      node.remove();
      this.shown.delete(number);
    }
    let next = null;
    for (let number = last - 1; number >= first; number--) {
      let node = this.shown.get(number);
      if (!node) {
        node = this.make(number);
        node.style.top = `${number * this.height}px`;
        this.shown.set(number, node);
        this.sheet.insertBefore(node, next); // in reading order, also when scrolling up
      }
      next = node;
    }
  }

  /** Scrolls a row into view; rows outside the view are centered. */
  reveal(number) {
    this.draw(); // so that the room is known
    const top = number * this.height;
    if (top < this.top || top + this.height > this.top + this.room) this.scroll(top - (this.room - this.height) / 2);
  }

  scroll(top) {
    if (top === this.top) return;
    this.box.scrollTop = top;
    this.look();
  }
}

/** Fetches the data of a part of the page when it comes near the window, and again after its content has changed. */
class Lazily {
  static near = 250; // pixels from the window
  static following = new Set(); // those that will be drawn in a moment

  /** box: a <details> element; nothing is drawn while it is closed. */
  constructor(box, fetch) {
    Object.assign(this, { box, fetch, seen: false, near: false, stale: true });
    const look = () => { if (box.open && this.near && this.stale) this.go(); };
    const watch = (what, rootMargin) => new IntersectionObserver(([entry]) => {
      this[what] = entry.isIntersecting;
      look();
    }, { rootMargin }).observe(box);
    box.addEventListener("toggle", look);
    watch("seen", "0px");
    watch("near", `${Lazily.near}px`);
  }

  /** Marks the shown data as outdated. What is near the window follows a moment after what is in sight. */
  again() {
    this.stale = true;
    clearTimeout(this.timer);
    Lazily.following.delete(this);
    if (!this.box.open) return undefined;
    if (this.seen) return this.go();
    Lazily.following.add(this);
    this.timer = setTimeout(() => this.follow(), 100);
    return undefined;
  }
  async follow() {
    try {
      if (this.near && this.stale) await this.go();
    } finally { Lazily.following.delete(this); }
  }
  go() {
    this.stale = false;
    return this.fetch();
  }
}
