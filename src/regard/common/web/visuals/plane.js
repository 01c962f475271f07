// A plane: a grid with axes, arrows from its origin, and points that can be dragged, or moved with the arrow keys.

/** A plane from low to high, [x, y] each. label: what is to be seen · free: whether something in it can be moved */
function planeOf({ low, high, label, free = false, width = 400 }) {
  const unit = width / (high[0] - low[0]);
  const height = unit * (high[1] - low[1]);
  const x = (value) => round((value - low[0]) * unit);
  const y = (value) => round((high[1] - value) * unit);
  const step = [1, 2, 5].flatMap((by) => [-3, -2, -1, 0, 1, 2, 3, 4].map((power) => by * 10 ** power)).sort((a, b) => a - b).find((each) => each * unit >= 30);
  const lines = (from, to) => Array.from({ length: Math.floor(to / step + 1e-9) - Math.ceil(from / step - 1e-9) + 1 }, (_, at) => (Math.ceil(from / step - 1e-9) + at) * step);
  const svg = drawing(round(width), round(height), label);
  svg.classList.add("plane");
  if (free) svg.setAttribute("role", "group"); // what can be moved is inside
  const grid = draw("g", { class: "plane-grid", "aria-hidden": "true" });
  const written = new Map(); // each text's box, so that names keep off numbers and off each other
  for (const at of lines(low[0], high[0])) {
    grid.append(draw("line", { x1: x(at), x2: x(at), y1: 0, y2: height, class: at === 0 ? "plane-axis" : "" }));
    if (at && at > low[0] && at < high[0]) number(x(at), y(0) + 13, "middle", digits(at));
  }
  for (const at of lines(low[1], high[1])) {
    grid.append(draw("line", { x1: 0, x2: width, y1: y(at), y2: y(at), class: at === 0 ? "plane-axis" : "" }));
    if (at && at > low[1] && at < high[1]) number(x(0) - 5, y(at) + 4, "end", digits(at));
  }
  svg.append(grid);

  /** An arrow from the origin with its name; to([x, y]) moves it. */
  function arrow(name, kind) {
    const line = draw("line", { x1: x(0), y1: y(0) });
    const head = draw("path", {});
    const text = draw("text", { class: "plane-name", "aria-hidden": "true" }, name);
    svg.append(draw("g", { class: `plane-arrow ${kind}` }, line, head, text));
    return {
      to([right, up]) {
        const size = Math.hypot(right, up) * unit;
        const [cos, sin] = size ? [(right * unit) / size, (up * unit) / size] : [0, 0];
        const [tipX, tipY] = [x(right), y(up)];
        const long = Math.min(13, size);
        const back = (along, aside) => `${round(tipX - along * cos + aside * sin)} ${round(tipY + along * sin + aside * cos)}`;
        place(line, { x2: round(tipX - 0.7 * long * cos), y2: round(tipY + 0.7 * long * sin) });
        place(head, { d: size ? `M${round(tipX)} ${round(tipY)}L${back(long, 0.42 * long)}L${back(0.75 * long, 0)}L${back(long, -0.42 * long)}Z` : "" });
        // Ahead of the tip; where another text is written, as little aside as needed.
        const places = [0, 1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6].flatMap((turn) => [18, 30].map((far) => {
          const [c, s] = [Math.cos((turn * Math.PI) / 6), Math.sin((turn * Math.PI) / 6)];
          return [clampTo(tipX + far * (cos * c - sin * s) - 3, 4, width - 14), clampTo(tipY - far * (sin * c + cos * s) + 5, 14, height - 4)];
        }));
        const others = [...written].filter(([of]) => of !== text).map(([, box]) => box);
        const [left, base] = places.find((at) => others.every((box) => apart(box, boxOf(...at)))) ?? places[0];
        written.set(text, boxOf(left, base));
        place(text, { x: left, y: base });
      },
    };

    /** The box of the name, written at x and y: a line of 17 pixels. */
    function boxOf(left, base) { return [left - 2, base - 17, left + 11 * name.length + 2, base + 5]; }
  }

  /** A point that can be moved. move([x, y]): where it shall be · grid: the distance of one press of a key */
  function handle(name, kind, move, { grid: by = 0.5 } = {}) {
    let now = [0, 0];
    const made = draw("g", { class: `plane-handle ${kind}`, tabindex: 0, role: "slider", "aria-label": name, "aria-roledescription": "movable point" },
      draw("circle", { r: 20, class: "plane-reach" }), draw("circle", { r: 6.5 }));
    const inside = ([right, up]) => [clampTo(right, low[0], high[0]), clampTo(up, low[1], high[1])];
    made.addEventListener("pointerdown", (event) => { made.setPointerCapture(event.pointerId); made.focus(); event.preventDefault(); });
    made.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // touch-action has no effect inside an SVG: the page would scroll
    made.addEventListener("pointermove", (event) => {
      if (!made.hasPointerCapture(event.pointerId)) return;
      const box = svg.getBoundingClientRect();
      const scale = width / box.width / unit;
      const to = [low[0] + (event.clientX - box.left) * scale, high[1] - (event.clientY - box.top) * scale];
      move(inside(to.map((value) => Number((Math.round(value * 10) / 10).toFixed(1)))));
    });
    made.addEventListener("keydown", (event) => {
      const way = stepOf(event, { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] });
      if (way) move(inside(now.map((value, axis) => Number((value + way[axis] * (event.shiftKey ? by / 5 : by)).toFixed(9)))));
    });
    svg.append(made);
    return {
      to(next) {
        now = next;
        place(made, { transform: `translate(${x(next[0])} ${y(next[1])})`, "aria-valuenow": next[0], "aria-valuemin": low[0], "aria-valuemax": high[0], "aria-valuetext": `(${next.map((value) => digits(value)).join(", ")})` });
      },
    };
  }
  return { svg, x, y, unit, arrow, handle };

  function number(at, base, anchor, text) {
    const node = draw("text", { x: at, y: base, "text-anchor": anchor }, text);
    const wide = 6.5 * text.length;
    const left = anchor === "end" ? at - wide : at - wide / 2;
    written.set(node, [left, base - 12, left + wide, base + 4]);
    grid.append(node);
  }

  function apart(a, b) { return a[2] < b[0] || b[2] < a[0] || a[3] < b[1] || b[3] < a[1]; }
  function round(value) { return Math.round(value * 100) / 100; }
  function clampTo(value, least, most) { return round(Math.min(most, Math.max(least, value))); }
}
