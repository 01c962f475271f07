// A plot: the matrix of a head on a canvas, at any zoom, with pins and pointer on a second canvas above it.
//
// The view is state.view: the first visible row and key, and the number of visible keys; null shows the whole matrix.

/** Where a plot is: what is chosen and visible, in rows and keys of the plot. These are the page's own; a comparison of two texts has others. */
const pagePlace = {
  get query() { return state.query; },
  get key() { return state.key; },
  get pins() { return state.pins; },
  get hover() { return state.hover; },
  get view() { return state.view; },
  get rows() { return rowsNow(); },
  choose: (change) => choose(change),
};

class Plot {
  /**
   * painter(): what is drawn; margins: "tracks" or "labels"; place: as pagePlace; differing(kind), if set: 1 where the tokens along
   * "queries" or "keys" differ from those of another run.
   */
  constructor(holder, { name, margins, painter, run = () => state.run, place = pagePlace }) {
    Object.assign(this, { holder, name, margins, painter, run, place, width: 0, height: 0, waiting: [] });
    this.canvas = element("canvas", undefined, { className: "matrix", tabIndex: 0, role: "application", ariaRoleDescription: "attention map" });
    this.over = element("canvas", undefined, { className: "over", ariaHidden: "true" });
    holder.classList.add("plot");
    holder.append(this.canvas, this.over);
    tiles.landed.add(() => this.shown && (this.waiting.length ? this.now() : this.later()));
    // The width is read only when it has changed, since reading it triggers layout.
    new ResizeObserver(() => { this.room = holder.clientWidth; this.later(); }).observe(holder);
    addEventListener("resize", () => { this.outer = null; this.later(); });
  }

  get shown() {
    this.room ??= this.holder.clientWidth;
    return this.room > 0;
  }
  get call() { return runs[this.run()].calls[Math.min(state.call, runs[this.run()].calls.length - 1)]; }

  /** Computes the sizes of the canvas; the matrix fills the space that the margins leave. */
  measure() {
    const [outer, dpr] = [this.room, devicePixelRatio || 1];
    if (outer === this.outer && dpr === this.dpr) return;
    const room = gutters(outer, this.margins);
    const width = Math.max(40, outer - room.left - room.right);
    const height = Math.round(clamp(width, 160, Math.max(300, innerHeight * 0.72)));
    Object.assign(this, { outer, dpr, width, height, ...room });
    for (const canvas of [this.canvas, this.over]) {
      canvas.width = Math.round(outer * dpr);
      canvas.height = Math.round((room.top + height + room.bottom) * dpr);
      canvas.style.height = `${room.top + height + room.bottom}px`;
    }
    this.holder.style.height = this.canvas.style.height;
  }

  /** Whether cells are square: if the matrix is nearly square. */
  get squared() {
    const { Q, K } = this.call;
    return Math.max(Q / K, K / Q) <= 1.5;
  }

  get home() { return this.squared ? Math.max(this.call.K, (this.call.Q * this.width) / this.height) : this.call.K; }

  /** The visible part: {row, column, span, kx, ky}, kx and ky in CSS pixels per key and per row. */
  view(view = this.place.view) {
    const { Q, K } = this.call;
    const span = clamp(view?.span ?? this.home, Math.min(this.home, Math.max(1, this.width / 72)), this.home);
    const kx = this.width / span;
    const ky = this.squared ? kx : (kx * K * this.height) / (Q * this.width);
    return {
      span, kx, ky, row: clamp(view?.row ?? 0, 0, Math.max(0, Q - this.height / ky)), column: clamp(view?.column ?? 0, 0, Math.max(0, K - span)),
    };
  }

  /** Sets the view, clamped to the matrix; the whole matrix is view null. */
  show({ row, column, span }) {
    const at = this.view({ row, column, span });
    const whole = at.span >= this.home * (1 - 1e-9);
    return this.place.choose({ view: whole ? null : { row: at.row, column: at.column, span: at.span } });
  }

  pan(dx, dy) {
    const at = this.view();
    return this.show({ row: at.row - dy / at.ky, column: at.column - dx / at.kx, span: at.span });
  }

  /** Zooms by a factor around the given point of the plot, otherwise around the pinned cell, or the point next to it. */
  zoom(factor, x, y) {
    const at = this.view(), { query, key } = this.place, pinned = x === undefined;
    x ??= clamp(((key ?? at.column + at.span / 2 - 0.5) + 0.5 - at.column) * at.kx, 0, this.width);
    y ??= clamp((query + 0.5 - at.row) * at.ky, 0, this.height);
    const next = this.view({ ...at, span: at.span / factor });
    const moved = { ...next, row: at.row + y / at.ky - y / next.ky, column: at.column + x / at.kx - x / next.kx };
    return this.show(pinned ? this.holding(moved) : moved);
  }

  /** The view moved as little as needed to contain the pinned cell. */
  holding(at) {
    const into = (first, visible, place) => (place < first ? place : place + 1 > first + visible ? place + 1 - visible : first);
    return { span: at.span, row: into(at.row, this.height / at.ky, this.place.query), column: this.place.key === null ? at.column : into(at.column, at.span, this.place.key) };
  }

  /** Scrolls to the pinned cell if it is outside the view. */
  follow() {
    if (!this.place.view) return;
    const [at, next] = [this.view(), this.holding(this.view())];
    if (next.row !== at.row || next.column !== at.column) this.show(next);
  }

  /** The level of the tiles and how their cells are merged: as fine as pixels, unless there were too many tiles. */
  detail(at = this.view()) {
    const [high, wide] = [levelFor(1 / (at.ky * this.dpr)), levelFor(1 / (at.kx * this.dpr))];
    let level = Math.min(high, wide);
    const dear = () => {
      const tall = Math.min(this.call.Q, this.height / at.ky);
      return Math.max(high, wide) - level > 8 || this.visible(at, level).length > 256 || (tall * at.span) / 4 ** level > 4e6;
    };
    while (level < Math.max(high, wide) && dear()) level++;
    return { level, fold: [Math.max(0, high - level), Math.max(0, wide - level)], high, wide };
  }

  /** The cell at a point of the canvas in CSS pixels: {row, column} as fractional positions, or null outside the matrix. */
  under(x, y) {
    const at = this.view();
    const [row, column] = [at.row + (y - this.top) / at.ky, at.column + (x - this.left) / at.kx];
    const inside = x >= this.left && y >= this.top && row < Math.min(this.call.Q, this.place.rows) && column < this.call.K;
    return inside && x < this.left + this.width && y < this.top + this.height ? { row, column } : null;
  }

  /** The row or key whose label or bar is at a point in the margins: {row} or {column}, or null. */
  beside(x, y) {
    const at = this.view();
    const [row, column] = [Math.floor(at.row + (y - this.top) / at.ky), Math.floor(at.column + (x - this.left) / at.kx)];
    if (x < this.left && y >= this.top && y < this.top + this.height && row < Math.min(this.call.Q, this.place.rows)) return { row };
    return y < this.top && x >= this.left && x < this.left + this.width && column < this.call.K ? { column } : null;
  }

  /** Draws at the next frame; resolves when everything visible is drawn. */
  draw(changed) {
    if (!this.shown) { tiles.want(this.name, []); return Promise.resolve(); }
    if ([...changed].every((name) => name === "hover")) { this.later("over"); return Promise.resolve(); }
    return new Promise((done, failed) => {
      this.waiting.push({ done, failed });
      if (changed.size === 1 && changed.has("view")) this.later(); // while the map is moved, one drawing per frame is enough
      else this.now();
    });
  }

  /** Draws once at the next frame, however often it is called. */
  later(what = "all") {
    if (what === "all") this.dirty = true;
    this.frame ??= requestAnimationFrame(() => this.now(this.dirty));
  }

  now(all = true) {
    cancelAnimationFrame(this.frame);
    Object.assign(this, { frame: null, dirty: all });
    if (!this.shown) return this.settle(true);
    this.measure();
    if (all) this.settle(this.paint());
    return this.overlay();
  }

  settle(complete) {
    if (!complete && !this.error) return;
    for (const { done, failed } of this.waiting.splice(0)) complete ? done() : failed(this.error);
  }

  /** One frame; true when nothing that is visible was missing. */
  paint() {
    const at = this.view();
    const painter = this.painter();
    const detail = this.detail(at);
    const place = { call: state.call, head: state.head, pool: state.pool };
    const near = this.visible(at, detail.level);
    for (const of of painter.figures(this.track > 0)) if (!tracksNow(of.n, of)) tracksOf(of.n, of).then(() => this.later(), () => undefined); // the sentence says why
    const top = { ...place, level: topLevel(this.call), row: 0, column: 0 }; // what is shown until finer tiles are there
    const wanted = near.flatMap((spot) => painter.needs({ ...place, ...spot, level: detail.level }));
    tiles.want(this.name, [...wanted, ...painter.needs(top)]);
    const there = (level, fold) => (spot) => painter.bitmap({ ...place, ...spot, level }, fold);
    const missing = !near.every(there(detail.level, detail.fold));
    this.error = missing ? wanted.map((each) => tiles.error(each)).find(Boolean) : undefined;
    const drawn = !missing || near.some(there(detail.level, detail.fold)) || there(top.level, this.foldAt(top.level, detail))(top);
    // The last head stays for a moment, to avoid flicker.
    if (missing && !drawn && performance.now() - (this.painted ?? -1e9) < 150) {
      setTimeout(() => this.later(), 160);
      return false;
    }
    this.painted = performance.now();
    this.dirty = false;
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    this.matrix(context, painter, at, detail, place, near);
    context.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    drawMargins(this, context, at);
    if (this.after) this.after(at, detail);
    return !missing;
  }

  /** The visible tiles at a level, the middle ones first. */
  visible(at, level) {
    const size = TILE * 2 ** level;
    const range = (first, count, most) => [Math.floor(first / size), Math.max(0, Math.ceil(Math.min(first + count, most) / size) - 1)];
    const [r0, r1] = range(at.row, this.height / at.ky, Math.min(this.call.Q, this.place.rows));
    const [c0, c1] = range(at.column, at.span, this.call.K);
    const found = [];
    for (let row = r0; row <= r1; row++) for (let column = c0; column <= c1; column++) found.push({ row, column });
    const far = ({ row, column }) => Math.hypot(row - (r0 + r1) / 2, column - (c0 + c1) / 2);
    return found.sort((a, b) => far(a) - far(b));
  }

  foldAt(level, { high, wide }) { return [Math.min(8, Math.max(0, high - level)), Math.min(8, Math.max(0, wide - level))]; }

  /** Draws the tiles from the finest loaded level, clipped to the matrix. */
  matrix(context, painter, at, detail, place, near) {
    const { dpr, left, top, width, height } = this;
    const X = (key) => (left + (key - at.column) * at.kx) * dpr, Y = (row) => (top + (row - at.row) * at.ky) * dpr;
    const rows = Math.min(this.call.Q, this.place.rows);
    const [x0, x1] = [left * dpr, Math.min((left + width) * dpr, X(this.call.K))];
    const [y0, y1] = [top * dpr, Math.min((top + height) * dpr, Y(rows))];
    context.save();
    context.beginPath();
    context.rect(Math.round(x0), Math.round(y0), Math.round(x1) - Math.round(x0), Math.round(y1) - Math.round(y0));
    context.clip();
    context.fillStyle = css("--raised");
    context.fillRect(x0, y0, x1 - x0, y1 - y0);
    context.imageSmoothingEnabled = false;
    const hatch = hatching(1, X(0) % (6 * dpr), Y(0) % (6 * dpr));
    for (const spot of near) {
      const ups = Math.max(0, topLevel(this.call) - detail.level); // a small plot is coarser than the level with one tile
      for (let up = 0; up <= ups; up++) {
        const level = detail.level + up, size = TILE * 2 ** level;
        const here = { ...place, level, row: spot.row >> up, column: spot.column >> up };
        const fold = up ? this.foldAt(level, detail) : detail.fold;
        const bitmap = painter.bitmap(here, fold);
        if (!bitmap) continue;
        const [high, wide] = [2 ** (level + fold[0]), 2 ** (level + fold[1])];
        const part = TILE * 2 ** detail.level;
        const [i0, j0] = [spot.row * part, spot.column * part];
        const [sx, sy] = [(j0 - here.column * size) / wide, (i0 - here.row * size) / high];
        const [sw, sh] = [Math.min(part / wide, bitmap.width - sx), Math.min(part / high, bitmap.height - sy)];
        if (sw <= 0 || sh <= 0) break;
        const [px, py] = [Math.round(X(j0)), Math.round(Y(i0))];
        const [pw, ph] = [Math.round(X(j0 + sw * wide)) - px, Math.round(Y(i0 + sh * high)) - py];
        context.fillStyle = hatch;
        context.fillRect(px, py, pw, ph);
        context.drawImage(bitmap, sx, sy, sw, sh, px, py, pw, ph);
        break;
      }
    }
    if (Math.min(at.kx, at.ky) >= 9) drawCells(this, context, painter, at, place, near, X, Y);
    this.alarms(context, painter, detail, place, near, X, Y);
    context.restore();
  }

  /** Marks invalid weights with a minimum size, so that they are visible at every zoom. */
  alarms(context, painter, { level, fold }, place, near, X, Y) {
    const [high, wide] = [2 ** (level + fold[0]), 2 ** (level + fold[1])];
    const [least, edge] = [Math.round(7 * this.dpr), Math.round(this.dpr)];
    if (X(wide) - X(0) >= least && Y(high) - Y(0) >= least) return;
    for (const spot of near) {
      const tile = painter.codes({ ...place, ...spot, level }, fold);
      const size = TILE * 2 ** level;
      for (const [r, c, code] of tile?.alarms?.cells ?? []) {
        const middle = [X(spot.column * size + (c + 0.5) * wide), Y(spot.row * size + (r + 0.5) * high)];
        const [x, y] = middle.map((at) => Math.round(at - least / 2)); // on whole pixels, so that edges are sharp
        context.fillStyle = css("--paper");
        context.fillRect(x - edge, y - edge, least + 2 * edge, least + 2 * edge);
        context.fillStyle = css({ [OUT]: "--out", [NAN]: "--nan", [LEAK]: "--leak" }[code]);
        context.fillRect(x, y, least, least);
      }
    }
  }

  /** Draws the pins and the pointer. */
  overlay() {
    const context = this.over.getContext("2d");
    context.setTransform(this.dpr, 0, 0, this.dpr, 0, 0);
    context.clearRect(0, 0, this.outer, this.over.height);
    drawPins(this, context, this.view());
  }
}

/**
 * The painter of one head. of(): { n, call, head }, its run by number or name; shows: the number of the run that a click on it chooses.
 * codes are the weights, for words; numbers and colors may be value-weighted.
 */
const painterOf = (of, shows) => ({
  shows,
  get n() { return of().n; },
  colored: () => ({ ...of(), n: valuedRun(of().n, of()) }),
  tracks() { return tracksNow(this.colored().n, of()); },
  figures(beside) { return [...(beside ? [of()] : []), ...(SCALES[state.scale].perRow ? [this.colored()] : [])]; }, // that have to be loaded
  needs(place) { return [{ ...place, ...of() }, ...(this.colored().n === this.n ? [] : [{ ...place, ...this.colored() }])]; },
  codes: (place, fold) => tiles.at({ ...place, ...of() }, fold),
  numbers(place, fold) { return tiles.at({ ...place, ...this.colored() }, fold); },
  bitmap(place, fold) { return tiles.bitmap({ ...place, ...this.colored() }, fold, this.tracks()); },
});
const headNow = () => ({ call: state.call, head: state.head });
