// A virtual list: rows of equal height, of which only the visible ones are in the document.

class Lines {
  /** box is the scrolling element, height that of a row in pixels, make(number) creates the element of a row. */
  constructor(box, height, make) {
    Object.assign(this, { box, height, make, count: 0, shown: new Map() });
    this.sheet = element("div", null, { className: "lines" });
    this.sheet.setAttribute("role", "presentation");
    box.append(this.sheet);
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    new ResizeObserver(() => this.draw()).observe(box);
  }

  /** Sets the number of rows, and creates the visible ones again. */
  reset(count) {
    this.count = count;
    this.sheet.style.height = `${count * this.height}px`;
    this.sheet.replaceChildren();
    this.shown.clear();
    this.draw();
  }

  draw() {
    if (!this.box.clientHeight) return; // hidden: it is drawn when it is shown again
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 3);
    const last = Math.min(this.count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / this.height) + 3);
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
    const [top, room] = [number * this.height, this.box.clientHeight];
    if (top >= this.box.scrollTop && top + this.height <= this.box.scrollTop + room) return;
    this.box.scrollTop = top - (room - this.height) / 2;
    this.draw();
  }
}

/** Fetches the data of a part of the page when it becomes visible, and again after its content has changed. */
class Lazily {
  constructor(node, fetch) {
    Object.assign(this, { fetch, seen: false, stale: true });
    new IntersectionObserver(([entry]) => {
      this.seen = entry.isIntersecting;
      if (this.seen && this.stale) this.go();
    }, { rootMargin: "250px" }).observe(node);
  }

  /** Marks the shown data as outdated. */
  again() {
    this.stale = true;
    return this.seen ? this.go() : undefined;
  }
  go() {
    this.stale = false;
    return this.fetch();
  }
}
