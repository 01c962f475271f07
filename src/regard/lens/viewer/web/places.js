// The bar of links to the parts of the page.

const PLACES = { live: "Try", findings: "Findings", steps: "Steps", atlas: "Heads", map: "Map", reader: "Text", lines: "Lines", walk: "Step by step", compare: "Comparison" };

const places = {
  name: "places",

  build() {
    $("places").replaceChildren(...Object.entries(PLACES).map(([id, name]) => {
      const made = button(name, () => this.go(id));
      made.dataset.place = id;
      return made;
    }));
  },

  async go(id) {
    if (state.filled && state.filled !== id) await choose({ filled: null });
    $(id).tabIndex = -1;
    $(id).focus({ preventScroll: true });
    $(id).scrollIntoView({ behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth", block: "start" });
    this.settle(id);
  },

  /** Scrolls there again at the end, since parts that are drawn while the page scrolls may move it; not after another input. */
  settle(id) {
    this.done?.abort();
    this.done = new AbortController();
    const { signal } = this.done;
    addEventListener("scrollend", () => { this.done.abort(); $(id).scrollIntoView({ block: "start" }); }, { signal });
    for (const input of ["wheel", "pointerdown", "touchstart", "keydown"]) addEventListener(input, () => this.done.abort(), { signal, passive: true });
    setTimeout((done) => done.abort(), 2000, this.done);
  },

  draw() {
    for (const button of $("places").children) button.hidden = $(button.dataset.place).hidden;
    $("places").querySelector("[data-place=reader]").textContent = keyAxis().grid ? "Image" : "Text";
  },
};
screens.push(places);
