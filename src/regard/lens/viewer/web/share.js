// Sharing: the link to this view, Python code that computes the numbers, and image files.

/** Copies text to the clipboard; shows it in a dialog if the browser does not allow that. */
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    announce(`${what} is copied.`);
  } catch {
    const area = element("textarea", text, { readOnly: true, ariaLabel: what });
    const close = button("close", () => $("copying").close());
    $("copying").replaceChildren(element("div", undefined, { className: "bar" }, element("h2", `${what}: copy it from here`, { id: "copying-title" }), close), area);
    $("copying").showModal();
    area.select();
  }
}

let statusTimer = 0;
/** Shows a short message in a corner of the page, also to screen readers. */
function announce(text) {
  $("status").textContent = text;
  $("status").classList.add("shown");
  clearTimeout(statusTimer);
  statusTimer = setTimeout(() => $("status").classList.remove("shown"), 1800);
}

/** Downloads a file. */
function save(blob, name) {
  const link = element("a", undefined, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  announce(`${name} is saved.`);
}

const share = {
  /** The URL of this view; in a notebook, which has none, the URL fragment. */
  link: () => (location.protocol === "about:" ? address() : new URL(address(), location.href).href),

  /** Python code that computes the chosen row or column, or the pair under the pointer. */
  python(place = state) {
    const { query, key } = place;
    const from = key === null && place.direction === "from";
    const { queries, keys: columns } = callNow();
    const given = from ? `keys=${Math.min(query, callNow().K - 1)}` : key === null ? `rows=${query}` : `rows=${query}, keys=${key}`;
    const part = from ? "[0, :, 0]" : key === null ? "[0, 0]" : "[0, 0, 0]";
    const spelled = (of, i) => `${quote(of, i, 30)} (${i})`;
    const comment = from ? `the weight of each row on ${spelled(axis(columns), Math.min(query, callNow().K - 1))}` : key === null ? `the weights of ${spelled(axis(queries), query)} on all keys` : `${spelled(axis(queries), query)} → ${spelled(axis(columns), key)}`;
    const begin = `import regard as rg\n\nrun = ${runs[state.run].python}\n`;
    if (!isMean(state.head)) return `${begin}run.calls[${state.call}].weights(${given}, heads=${state.head})${part}  # ${headTitle()}: ${comment}\n`;
    const mean = part.replace("[0, ", "["); // the mean has no axis of heads
    const numbers = callsOf(state.run, state.call, state.head);
    const heads = numbers.length === 1 ? `run.calls[${state.call}].weights(${given})` : `np.concatenate([run.calls[i].weights(${given}) for i in [${numbers.join(", ")}]])`;
    return `import numpy as np\n${begin}${heads}.mean(0)${mean}  # ${headTitle()}: ${comment}\n`;
  },

  under() {
    const { hover } = state;
    return hover ? { ...state, query: Math.floor(hover.row), key: Math.floor(hover.column) } : state;
  },

  build() {
    this.part = element("select", undefined, { id: "figure-of" });
    this.narrow = element("input", undefined, { type: "checkbox", id: "figure-narrow" });
    $("actions").append(button("copy link", () => copy(this.link(), "The link"), { id: "copy-link" }), button("copy as Python", () => copy(this.python(), "The Python"), { id: "copy-python" }),
      element("label", "figure of ", {}, this.part), element("label", undefined, { className: "toggle" }, this.narrow, " one column wide, for papers"),
      ...["PNG", "SVG"].map((kind) => button(kind, () => this.figure(kind.toLowerCase()).catch((error) => announce(`This cannot be drawn: ${error.message}`)), { id: `save-${kind.toLowerCase()}` })));
    $("actions").parentElement.addEventListener("toggle", () => this.offer());
  },

  /** The parts of the page that are shown now, each with its title. */
  offer() {
    const chosen = this.part.value || "map";
    const parts = [...document.querySelectorAll("section")].filter((part) => part.checkVisibility() && part.querySelector("h2") && !part.querySelector(":scope > details:only-child:not([open])"));
    this.part.replaceChildren(...parts.map((part) => element("option", clip(part.querySelector("h2").textContent, 40), { value: part.id })));
    this.part.value = parts.some(({ id }) => id === chosen) ? chosen : parts[0].id;
  },

  /** Saves a part of the page as a drawing, or rendered from it at twice its size, for papers five times. */
  async figure(kind) {
    announce("Drawing …");
    this.offer();
    const narrow = this.narrow.checked, drawn = new Blob([await figureOf($(this.part.value), narrow)], { type: "image/svg+xml" });
    const name = `regard-${this.part.value}-${headTitle()}.${kind}`.replace(/[^\w.]+/g, "-");
    if (kind === "svg") return save(drawn, name);
    const image = new Image();
    image.src = URL.createObjectURL(drawn);
    await image.decode();
    const times = narrow ? 5 : 2, sheet = new OffscreenCanvas(times * image.width, times * image.height);
    sheet.getContext("2d").drawImage(image, 0, 0, sheet.width, sheet.height);
    URL.revokeObjectURL(image.src);
    return save(await sheet.convertToBlob({ type: "image/png" }), name);
  },
};
share.build();
keys.push({ keys: ["y"], label: "y", what: "copy Python code for the pair under the pointer, or for the row", run: () => copy(share.python(share.under()), "The Python") });
