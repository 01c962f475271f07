// Input handling of a plot: mouse, touch and keyboard.
//
// Dragging pans. Ctrl and wheel, or two fingers, zoom; the wheel alone zooms only while the plot has the focus, so that a page can
// be scrolled past it. One finger scrolls the page up and down.

/** Adds the event listeners of a plot. */
function drive(plot) {
  const { canvas } = plot;
  const pointers = new Map();
  let begun = null; // where the first pointer was pressed, and whether it has moved since
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  const spread = () => {
    const [[ax, ay], [bx, by]] = [...pointers.values()];
    return { x: (ax + bx) / 2, y: (ay + by) / 2, apart: Math.max(8, Math.hypot(ax - bx, ay - by)) };
  };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button > 0) return;
    pointers.set(event.pointerId, at(event));
    canvas.setPointerCapture(event.pointerId);
    canvas.focus({ preventScroll: true });
    const [x, y] = at(event);
    begun = { x, y, moved: pointers.size > 1, from: plot.under(x, y) };
  });

  canvas.addEventListener("pointermove", (event) => {
    const [x, y] = at(event);
    if (!pointers.has(event.pointerId)) {
      pointed(plot, plot.under(x, y));
      return plot.aside?.(plot.beside(x, y));
    }
    const before = pointers.size === 2 ? spread() : null;
    const [px, py] = pointers.get(event.pointerId);
    pointers.set(event.pointerId, [x, y]);
    if (before) {
      const now = spread();
      plot.zoom(now.apart / before.apart, before.x - plot.left, before.y - plot.top);
      plot.pan(now.x - before.x, now.y - before.y);
      return;
    }
    if (!begun) return;
    const [dx, dy] = [Math.abs(x - begun.x), Math.abs(y - begun.y)];
    if (!begun.moved && (Math.hypot(dx, dy) < 4 || (event.pointerType === "touch" && dy > dx))) return; // the page scrolls
    begun.moved = true;
    plot.pan(x - px, y - py);
  });

  const up = (event) => {
    if (!pointers.delete(event.pointerId) || !begun || pointers.size) return;
    const { moved, from, x, y } = begun;
    begun = null;
    if (event.type === "pointercancel" || moved) return;
    if (from) clicked(plot, from, event);
    else if (plot.beside(x, y)) labelled(plot, plot.beside(x, y));
  };
  canvas.addEventListener("pointerup", up);
  canvas.addEventListener("pointercancel", up);
  canvas.addEventListener("pointerleave", () => { if (!pointers.size) { pointed(plot, null); plot.aside?.(null); } });
  canvas.addEventListener("dblclick", (event) => {
    const [x, y] = at(event);
    if (plot.under(x, y)) plot.zoom(event.altKey ? 0.5 : 2, x - plot.left, y - plot.top);
  });

  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey && document.activeElement !== canvas) return;
    event.preventDefault();
    const [x, y] = at(event);
    const lines = event.deltaMode === 1 ? 16 : 1;
    if (event.shiftKey && !event.ctrlKey) return plot.pan(-event.deltaX * lines || -event.deltaY * lines, 0);
    plot.zoom(2 ** clamp((-event.deltaY * lines) / (event.ctrlKey ? 80 : 240), -1, 1), clamp(x - plot.left, 0, plot.width), clamp(y - plot.top, 0, plot.height));
  }, { passive: false });

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const act = keyed(plot, event);
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  });
}

/** The action of a key on a plot; undefined for keys that the plot does not handle. */
function keyed(plot, { key, shiftKey }) {
  const move = ARROWS[key];
  const { place } = plot;
  if (move && shiftKey) return undefined;
  const view = plot.view();
  const page = Math.max(1, Math.floor(plot.height / view.ky) - 1);
  const to = (query, column) => () => place.choose({ query: clamp(query, 0, Math.max(0, place.rows - 1)), key: clamp(column, 0, plot.call.K - 1) });
  const column = place.key ?? Math.min(place.query, plot.call.K - 1);
  if (move) return to(place.query + move[0], column + (place.key === null && move[1] ? 0 : move[1]));
  return {
    PageUp: to(place.query - page, column), PageDown: to(place.query + page, column), Home: to(place.query, 0), End: to(place.query, plot.call.K - 1),
    "+": () => plot.zoom(2), "=": () => plot.zoom(2), "-": () => plot.zoom(0.5), 0: () => place.choose({ view: null }),
    Enter: () => place.choose({ pins: toggled(place.pins, place.query) }),
    Escape: () => (place.key !== null ? place.choose({ key: null }) : plot.canvas.blur()),
  }[key];
}

const toggled = (pins, row) => (pins.includes(row) ? pins.filter((pin) => pin !== row) : [...pins, row]);

function clicked(plot, { row, column }, event) {
  const [query, key] = [Math.floor(row), Math.floor(column)];
  if (event.shiftKey) return query === plot.place.query ? undefined : plot.place.choose({ pins: toggled(plot.place.pins, query) });
  const n = plot.painter().shows; // in a comparison, a click also chooses the run that the other screens show
  return plot.place.choose({ query, key, ...(n === undefined || n === state.run ? {} : { run: n }) });
}

/** A click on a label or a figure beside the matrix chooses its row or its key. */
const labelled = ({ place }, { row, column }) => place.choose(row === undefined ? { key: column } : { query: row });

/** Sets the position of the pointer; screens are updated once per frame. */
function pointed({ place }, next) {
  Object.assign(pointed, { place, next });
  pointed.frame ??= requestAnimationFrame(() => {
    pointed.frame = null;
    if (pointed.place.hover !== pointed.next) pointed.place.choose({ hover: pointed.next });
  });
}
