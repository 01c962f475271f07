// Passing on what is seen: the address, Python that computes the numbers, and pictures.

/** Puts text on the clipboard, or into a box to copy it from where the browser does not let a page do so. */
async function copy(text, what) {
  try {
    await navigator.clipboard.writeText(text);
    tell(`${what} is copied.`);
  } catch {
    const area = element("textarea", text, { readOnly: true, ariaLabel: what });
    const close = element("button", "close", { type: "button", onclick: () => $("copying").close() });
    $("copying").replaceChildren(element("div", undefined, { className: "bar" }, element("h2", `${what}, to be copied from here`, { id: "copying-title" }), close), area);
    $("copying").showModal();
    area.select();
  }
}

let telling = 0;
/** Says in a corner of the page, and to a screen reader, that something was done. */
function tell(text) {
  $("told").textContent = text;
  $("told").classList.add("shown");
  clearTimeout(telling);
  telling = setTimeout(() => $("told").classList.remove("shown"), 1800);
}

/** Hands a file to the reader. */
function save(blob, name) {
  const link = element("a", undefined, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  tell(`${name} is saved.`);
}

const share = {
  /** The address of this view; in a notebook, where a page has none, the part behind #. */
  link: () => (location.protocol === "about:" ? address() : new URL(address(), location.href).href),

  /** Lines of Python that compute what is pinned, or the pair under the pointer. */
  python(place = state) {
    const { query, key } = place;
    const from = key === null && place.direction === "from";
    const { queries, keys: columns } = callNow();
    const given = from ? `keys=${Math.min(query, callNow().K - 1)}` : key === null ? `rows=${query}` : `rows=${query}, keys=${key}`;
    const part = from ? "[0, :, 0]" : key === null ? "[0, 0]" : "[0, 0, 0]";
    const spelled = (of, i) => `“${clip(wordOf(of, i), 30)}” (${i})`;
    const told = from ? `what each row gives to ${spelled(axis(columns), Math.min(query, callNow().K - 1))}` : key === null ? `what ${spelled(axis(queries), query)} gives to each key` : `${spelled(axis(queries), query)} → ${spelled(axis(columns), key)}`;
    return `import regard as rg\n\nrun = ${data.python[state.run]}\nrun.calls[${state.call}].weights(${given}, heads=${state.head})${part}  # ${callTitle()}, head ${state.head}: ${told}\n`;
  },

  under() {
    const { hover } = state;
    return hover ? { ...state, query: Math.floor(hover.row), key: Math.floor(hover.column) } : state;
  },

  name: (kind) => `regard-${callTitle()}-head-${state.head}.${kind}`.replace(/[^\w.]+/g, "-"),

  async svg() {
    tell("Drawing …");
    save(new Blob([await figureOf()], { type: "image/svg+xml" }), this.name("svg"));
  },

  /** The same drawing as the SVG, in twice as many pixels. */
  async png() {
    tell("Drawing …");
    const url = URL.createObjectURL(new Blob([await figureOf()], { type: "image/svg+xml" }));
    const image = new Image();
    image.src = url;
    await image.decode();
    const canvas = new OffscreenCanvas(2 * image.width, 2 * image.height);
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(url);
    save(await canvas.convertToBlob({ type: "image/png" }), this.name("png"));
  },
};

$("copy-link").addEventListener("click", () => copy(share.link(), "The link"));
$("copy-python").addEventListener("click", () => copy(share.python(), "The Python"));
$("save-png").addEventListener("click", () => share.png());
$("save-svg").addEventListener("click", () => share.svg());
keys.push({ keys: ["y"], label: "y", what: "copy the number under the pointer, or the row, as Python", run: () => copy(share.python(share.under()), "The Python") });
