// The lines of the view of lines: an SVG with one line for each weight, from a row on the left to a key on the right.

const LINE = { high: 24, least: 0.005 }; // pixels from token to token; the smallest weight that has a line

/** The width of a line in pixels, and its opacity. */
const widthOf = (p) => 0.5 + 4.5 * Math.min(1, p);
const opacityOf = (p) => Math.sqrt(Math.min(1, p));

/** Draws all lines: one group for each head and row, with data-row, and one line for each weight, with data-key. */
function strokes(svg, { rows, keys, heads, shift }) {
  const high = LINE.high * Math.max(rows.length + shift, keys.length);
  svg.setAttribute("viewBox", `0 0 100 ${high}`);
  svg.style.height = `${high}px`;
  svg.classList.toggle("two", heads.length > 1);
  svg.replaceChildren(...heads.flatMap((of, number) => rows.map((i, r) => {
    const y = (at) => (at + 0.5) * LINE.high + (heads.length > 1 ? (number ? 2 : -2) : 0); // lines of two heads are next to each other
    const { p, code, sure } = of.get(i);
    const group = drawn("g", { "data-row": i, "data-head": number });
    keys.forEach((j, c) => {
      const kind = { [NAN]: "nan", [OUT]: "out", [LEAK]: "leak" }[code[j]];
      if (!kind && !(p[j] >= LINE.least)) return;
      const made = drawn("line", { x1: 0, y1: y(r + shift), x2: 100, y2: y(c), "data-key": j, "stroke-width": kind ? 2 : widthOf(p[j]), "stroke-opacity": kind ? 1 : opacityOf(p[j]) });
      if (kind) made.setAttribute("class", kind);
      if (sure?.[j] === 0) made.setAttribute("stroke-dasharray", "3 3"); // a mean of several weights
      group.append(made);
    });
    return group;
  })));
}
