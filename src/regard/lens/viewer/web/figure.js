// Figures of a view as SVG: its text as text, its boxes as rectangles, and what it draws on canvases as shapes.

const FONTS = "system-ui, 'Segoe UI', 'Noto Sans', 'DejaVu Sans', sans-serif";
const COLUMN = 340; // pixels of a view that is to be one column of a paper
const RECTS = 4096; // cells of an image: up to so many are rectangles
const PEN = { fillStyle: "#000", strokeStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "10px sans-serif", textAlign: "start", textBaseline: "alphabetic", direction: "ltr", dash: "", imageSmoothingEnabled: true };

/** The methods of a canvas's context that the page uses; what it draws becomes elements of an SVG. */
class SvgPen {
  constructor(defs) { Object.assign(this, PEN, { defs, root: draw("g"), matrix: new DOMMatrix(), saved: [], path: "" }, { measure: new OffscreenCanvas(1, 1).getContext("2d") }); }

  get group() { return this.clipped ?? this.root; }
  put(node) {
    if (!this.matrix.isIdentity) node.setAttribute("transform", `${this.matrix}`);
    if (this.globalAlpha < 1) node.setAttribute("opacity", this.globalAlpha);
    this.group.append(node);
  }
  tint(style) { return typeof style === "string" ? style : "url(#hatch)"; } // the only pattern of the page
  line() { return { fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, "stroke-dasharray": this.dash }; }

  save() { this.saved.push({ ...Object.fromEntries(Object.keys(PEN).map((name) => [name, this[name]])), matrix: this.matrix, clipped: this.clipped }); }
  restore() { Object.assign(this, this.saved.pop()); }
  setTransform(...parts) { this.matrix = new DOMMatrix(parts); }
  translate(x, y) { this.matrix = this.matrix.translate(x, y); }
  rotate(angle) { this.matrix = this.matrix.rotate((180 * angle) / Math.PI); }
  setLineDash(dash) { this.dash = dash.join(" "); }
  clearRect() { Object.assign(this, { root: this.root.replaceChildren() ?? this.root, clipped: undefined }); } // the page clears whole canvases
  beginPath() { this.path = ""; }
  moveTo(x, y) { this.path += `M${x} ${y}`; }
  lineTo(x, y) { this.path += `L${x} ${y}`; }
  rect(x, y, wide, high) { this.path += `M${x} ${y}h${wide}v${high}h${-wide}z`; }
  stroke() { this.put(draw("path", { d: this.path, ...this.line() })); }
  fillRect(x, y, width, height) { this.put(draw("rect", { x, y, width, height, fill: this.tint(this.fillStyle), "shape-rendering": "crispEdges" })); }
  clip() {
    const id = `clip-${this.defs.childElementCount}`;
    this.defs.append(draw("clipPath", { id }, draw("path", { d: this.path, transform: `${this.matrix}` })));
    const inner = draw("g", { "clip-path": `url(#${id})` });
    this.group.append(inner);
    this.clipped = inner;
  }
  measureText(text) { return Object.assign(this.measure, { font: this.font }).measureText(text); }
  fillText(text, x, y) {
    const ends = this.textAlign === "right" || this.textAlign === "end";
    const anchor = this.textAlign === "center" ? "middle" : ends === (this.direction === "ltr") ? "end" : "start"; // of the text, which may run the other way
    const [, weight = 400, size, family] = /^(?:(\d+) )?([\d.]+)px (.*)$/.exec(this.font);
    const down = this.textBaseline === "middle" ? 0.35 * size : 0;
    this.put(draw("text", { x, y: y + down, "text-anchor": anchor, direction: this.direction, fill: this.fillStyle, "font-weight": weight, "font-size": size, "font-family": family }, text));
  }

  /** An image of cells is a rectangle for each run of equal ones in a row; with many cells, or in a photograph, it stays an image. */
  drawImage(image, ...at) {
    const [left, top, width, height, x, y, wide, high] = at.length > 4 ? at : [0, 0, image.naturalWidth, image.naturalHeight, ...at];
    const size = { width: Math.ceil(width), height: Math.ceil(height) };
    const sheet = element("canvas", null, size), pen = sheet.getContext("2d");
    pen.drawImage(image, left, top, width, height, 0, 0, width, height);
    const cells = size.width * size.height <= RECTS && !this.imageSmoothingEnabled;
    if (!cells) return this.put(draw("image", { href: sheet.toDataURL(), x, y, width: wide, height: high, preserveAspectRatio: "none", "image-rendering": this.imageSmoothingEnabled ? "auto" : "pixelated" }));
    const pixels = new Uint32Array(pen.getImageData(0, 0, size.width, size.height).data.buffer);
    const group = draw("g", { "shape-rendering": "crispEdges" });
    for (let from = 0, to; from < pixels.length; from = to) {
      const row = Math.floor(from / size.width), end = (row + 1) * size.width;
      for (to = from + 1; to < end && pixels[to] === pixels[from]; to++);
      const hex = [0, 8, 16].map((shift) => ((pixels[from] >> shift) & 255).toString(16).padStart(2, "0")).join("");
      if (pixels[from]) group.append(draw("rect", { x: from - row * size.width, y: row, width: to - from, height: 1, fill: `#${hex}` }));
    }
    const { matrix } = this;
    this.matrix = matrix.translate(x, y).scale(wide / width, high / height);
    this.put(group);
    return Object.assign(this, { matrix });
  }
}

const frames = () => new Promise((done) => { requestAnimationFrame(() => requestAnimationFrame(done)); });

/** Draws the page once with pens instead of canvases: the pens by canvas. */
async function penned(defs) {
  const pens = new Map(), { getContext } = HTMLCanvasElement.prototype;
  HTMLCanvasElement.prototype.getContext = function context(...kind) {
    return this.isConnected ? pens.set(this, new SvgPen(defs)).get(this) : getContext.apply(this, kind);
  };
  try {
    await drawScreens(new Set([...Object.keys(state), "theme", "size"]));
    await thumbnails.paint(true);
    await frames(); // some parts are drawn when they have their size
  } finally { HTMLCanvasElement.prototype.getContext = getContext; }
  return pens;
}

/** The part of the screen in which an element can be seen: inside everything around it that scrolls or cuts off. */
function sightOf(node, part) {
  const sight = { left: -Infinity, top: -Infinity, right: Infinity, bottom: Infinity };
  for (let each = node; each !== part; each = each.parentElement) {
    if (getComputedStyle(each).overflow === "visible") continue;
    const { left, top, right, bottom } = each.getBoundingClientRect();
    Object.assign(sight, { left: Math.max(sight.left, left), top: Math.max(sight.top, top), right: Math.min(sight.right, right), bottom: Math.min(sight.bottom, bottom) });
  }
  return (box) => box.left >= sight.left - 1 && box.right <= sight.right + 1 && box.top >= sight.top - 4 && box.bottom <= sight.bottom + 4;
}

/** The lines of a text on the screen: [text, its box]. */
function linesOf(node, seen) {
  const found = [], range = document.createRange();
  for (const { segment, index } of graphemes.segment(node.data)) {
    range.setStart(node, index);
    range.setEnd(node, index + segment.length);
    const { top, bottom, left, right } = range.getBoundingClientRect(), last = found.at(-1);
    if (left === right || !seen({ top, bottom, left, right })) continue;
    if (!last || Math.abs(last[1].top - top) > 2) found.push([segment, { top, bottom, left, right }]);
    else Object.assign(last, [last[0] + segment, { top, bottom, left: Math.min(last[1].left, left), right: Math.max(last[1].right, right) }]);
  }
  return found;
}

/** What an element shows, below its children: rings, a background, and what is drawn on it. */
function* shapesOf(node, { x, y }, pens) {
  const box = node.getBoundingClientRect(), style = getComputedStyle(node);
  const at = { x: box.left - x, y: box.top - y, width: box.width, height: box.height };
  const pen = pens.get(node);
  if (pen) yield draw("svg", { ...at, viewBox: `0 0 ${node.width} ${node.height}`, preserveAspectRatio: "none" }, pen.root);
  if (node.localName === "svg") yield svgOf(node, at);
  if (pen || node.localName === "svg") return;
  for (const [, tint, wide] of [...style.boxShadow.matchAll(/((?:rgb|color)[^)]*\)) 0px 0px 0px ([\d.]+)px/g)].reverse()) {
    const size = Number(wide);
    yield draw("rect", { x: at.x - size / 2, y: at.y - size / 2, width: at.width + size, height: at.height + size, rx: 4, fill: "none", stroke: tint, "stroke-width": size });
  }
  const hatched = style.backgroundImage.includes("repeating");
  if (hatched || !/, 0\)$|transparent/.test(style.backgroundColor)) yield draw("rect", { ...at, rx: parseFloat(style.borderRadius) || 0, fill: hatched ? "url(#hatch)" : style.backgroundColor });
}

/** A copy of a drawing with the style that it has on the page. */
function svgOf(node, at) {
  const made = draw("svg", { ...at, viewBox: node.getAttribute("viewBox"), preserveAspectRatio: "none" }), own = node.querySelectorAll("*");
  made.append(...node.cloneNode(true).children);
  made.querySelectorAll("*").forEach((each, number) => {
    for (const name of ["stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "vector-effect", "display"]) each.setAttribute(name, getComputedStyle(own[number]).getPropertyValue(name));
  });
  return made;
}

/** The text of an SVG file of a part of the page; narrow: laid out as one column of a paper. */
async function figureOf(part, narrow) {
  part.style.width = narrow ? `${COLUMN}px` : "";
  part.dataset.figure = "yes"; // without controls
  try {
    await frames();
    const hatch = draw("pattern", { id: "hatch", width: 5, height: 5, patternUnits: "userSpaceOnUse" }, draw("path", { d: "M-1 6L6 -1M-1 1L1 -1M4 6L6 4", stroke: css("--hatch"), "stroke-width": 1 }));
    const defs = draw("defs", {}, hatch), pens = await penned(defs);
    const box = part.getBoundingClientRect(), margin = 12, above = 20;
    const [wide, high] = [Math.ceil(box.width + 2 * margin), Math.ceil(box.height + 2 * margin + above)];
    const size = narrow ? { width: "88mm", height: `${(88 * high) / wide}mm` } : { width: wide, height: high };
    const title = `${clip(runs[state.run].model, 48)} · ${clip(headTitle(), 70)}`;
    const root = draw("svg", { ...size, viewBox: `0 0 ${wide} ${high}`, "font-family": FONTS, "xml:space": "preserve" },
      draw("title", {}, title), defs, draw("rect", { width: wide, height: high, fill: css("--paper") }), draw("text", { x: margin, y: above, "font-size": 12, "font-weight": 600, fill: css("--ink") }, title));
    const from = { x: box.left - margin, y: box.top - margin - above };
    const walker = document.createTreeWalker(part, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT, (node) => {
      if (node.nodeType === Node.TEXT_NODE) return NodeFilter.FILTER_ACCEPT;
      return !node.checkVisibility({ visibilityProperty: true }) || node.parentElement.localName === "svg" ? NodeFilter.FILTER_REJECT : NodeFilter.FILTER_ACCEPT;
    });
    while (walker.nextNode()) {
      const node = walker.currentNode, text = node.nodeType === Node.TEXT_NODE;
      const seen = sightOf(node.parentElement, part);
      if (text) root.append(...linesOf(node, seen).map(([words, line]) => placedText(node.parentElement, words.replace(/\s+/g, " "), line, from)));
      else if (seen(node.getBoundingClientRect()) || pens.has(node)) root.append(...shapesOf(node, from, pens));
    }
    return `<?xml version="1.0" encoding="UTF-8"?>\n${new XMLSerializer().serializeToString(root)}`;
  } finally {
    part.style.width = "";
    delete part.dataset.figure;
    await redraw();
  }
}

/** A line of text where the page has it. */
function placedText(parent, text, box, { x, y }) {
  const { fontSize, fontWeight, fontFamily: fonts, color: fill } = getComputedStyle(parent);
  const pen = Object.assign(new OffscreenCanvas(1, 1).getContext("2d"), { font: `${fontWeight} ${fontSize} ${fonts}` });
  const { fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent } = pen.measureText("x");
  const direction = directionOf(text), base = box.top + ((box.bottom - box.top) * ascent) / (ascent + descent);
  return draw("text", { x: (direction === "rtl" ? box.right : box.left) - x, y: base - y, direction, "font-size": parseFloat(fontSize), "font-weight": fontWeight, fill }, text);
}
