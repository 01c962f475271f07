// The canvas of the overview of heads: a thumbnail, or a color and a number, for every head; thumbnails only of visible calls.

const thumbnails = {
  strips: new Memory(200), // the thumbnails of all heads of a call, side by side
  round: 0, // of painting; data that arrives for an earlier round is dropped
  done: new Set(), // calls whose thumbnails are drawn in this round

  /** Repaints the canvas, or only calls that have become visible; resolves when all thumbnails are drawn. */
  async paint(anew) {
    const canvas = $("atlas-canvas");
    if (anew) {
      this.round++;
      this.done.clear();
      const ratio = Math.min(devicePixelRatio || 1, 3);
      Object.assign(canvas, { width: Math.ceil(atlas.width * ratio), height: Math.ceil(atlas.height * ratio) });
      canvas.style.cssText = `width:${atlas.width}px;height:${atlas.height}px`;
      this.context = canvas.getContext("2d");
      this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
      this.brackets();
      for (const cell of atlas.cells) state.metric === "matrix" ? this.ground(cell) : this.figure(cell);
      if (state.metric !== "matrix") for (const cell of atlas.cells) this.badge(cell);
    }
    if (state.metric === "matrix") await Promise.all(this.inSight().map((call) => this.drawCall(call, this.round)));
  },

  inSight() {
    const box = $("atlas-box");
    const seen = ({ y }) => y + atlas.size > box.scrollTop - 200 && y < box.scrollTop + box.clientHeight + 200;
    const calls = new Set(atlas.cells.filter(seen).map(({ call }) => call));
    return [...calls].filter((call) => !this.done.has(call));
  },

  async drawCall(call, round) {
    this.done.add(call);
    const { run, scale } = state;
    const { strip, columns, rows, wrong } = await this.strips.get(`${run} ${call} ${scale} ${theme()}`, () => this.strip(run, call, scale));
    if (round !== this.round) return;
    this.context.imageSmoothingEnabled = columns > atlas.size || rows > atlas.size;
    this.context.imageSmoothingQuality = "high";
    for (const cell of atlas.cells) {
      if (cell.call !== call) continue;
      this.ground(cell);
      this.context.drawImage(strip, cell.head * columns, 0, columns, rows, cell.x, cell.y, atlas.size - 1, atlas.size - 1);
    }
    for (const cell of atlas.cells) if (cell.call === call) this.badge(cell, wrong[cell.head]);
  },

  /** The thumbnails of a call in the colors of the scale; scales relative to a row use the rows of the thumbnail. */
  async strip(run, call, scale) {
    const of = valuedThumbnails(run, call), { codes, rows, columns } = await sourceOf(of).overview(of, call);
    const { heads } = runs[run].calls[call];
    const strip = new OffscreenCanvas(heads * columns, rows);
    const image = new ImageData(heads * columns, rows);
    const pixels = new Uint32Array(image.data.buffer);
    const palettes = new Map(), wrong = new Uint8Array(heads);
    const colored = (line) => {
      const attended = SCALES[scale].perRow ? line.reduce((count, code) => count + (code !== MASKED), 0) : 1;
      if (!palettes.has(attended)) palettes.set(attended, palette(scale, attended));
      return palettes.get(attended);
    };
    for (let head = 0; head < heads; head++) {
      for (let row = 0; row < rows; row++) {
        const line = codes.subarray((head * rows + row) * columns, (head * rows + row + 1) * columns);
        const colors = colored(line);
        for (let column = 0; column < columns; column++) {
          const code = line[column];
          pixels[(row * heads + head) * columns + column] = colors[code];
          if (code === NAN || code === OUT || code === LEAK) wrong[head] = Math.max(wrong[head], code);
        }
      }
    }
    strip.getContext("2d").putImageData(image, 0, 0);
    return { strip, rows, columns, wrong };
  },

  /** The background of a cell, visible where cells are masked: hatching, if the cell is large enough. */
  ground({ x, y }) {
    this.context.fillStyle = css("--raised");
    this.context.fillRect(x, y, atlas.size - 1, atlas.size - 1);
    if (atlas.size < 20) return;
    this.context.fillStyle = hatching(this.context.getTransform().a);
    this.context.fillRect(x, y, atlas.size - 1, atlas.size - 1);
  },

  /** The color of a metric, and its value if the cell is large enough. */
  figure(cell) {
    const { call, head, x, y } = cell;
    const value = metrics.value(state.metric, call, head);
    const at = value === null ? 0 : step(value / metrics.top(state.metric), "linear");
    this.context.fillStyle = value === null ? css("--nan") : color(at, "linear");
    this.context.fillRect(x, y, atlas.size - 1, atlas.size - 1);
    if (atlas.size >= 22) {
      this.context.fillStyle = value === null ? css("--on-nan") : ink(at, "linear");
      this.context.font = `${Math.min(12, 0.42 * atlas.size)}px system-ui, sans-serif`;
      this.context.textAlign = "center";
      this.context.textBaseline = "middle";
      this.context.fillText(metrics.short(state.metric, value), x + (atlas.size - 1) / 2, y + atlas.size / 2);
    }
  },

  /** A mark for findings of the audit and for invalid weights: a colored corner, or a frame if cells are small. */
  badge({ call, head, x, y }, wrong = 0) {
    const worst = badges.worst(badges.at(call, head));
    const tint = worst === "fault" ? "--leak" : { [LEAK]: "--leak", [NAN]: "--nan", [OUT]: "--out" }[wrong] ?? (worst === "warning" ? "--out" : null);
    if (!tint) return;
    const { context } = this, size = atlas.size - 1;
    Object.assign(context, { fillStyle: css(tint), strokeStyle: css(tint), lineWidth: 2 });
    if (size < 16) {
      context.strokeRect(x, y, size, size);
      return;
    }
    context.beginPath();
    context.moveTo(x + 0.55 * size, y);
    context.lineTo(x + size, y);
    context.lineTo(x + size, y + 0.45 * size);
    context.closePath();
    context.fill();
    Object.assign(context, { strokeStyle: css("--paper"), lineWidth: 1 });
    context.stroke();
  },

  /** Brackets above heads that share a key/value head (grouped-query attention). */
  brackets() {
    const call = atlas.kinds[0][1][0];
    const { heads, groups } = runs[state.run].calls[call];
    if (groups === heads) return;
    const cells = atlas.cells.filter((cell) => cell.call === call);
    Object.assign(this.context, { strokeStyle: css("--soft"), lineWidth: 1 });
    this.context.beginPath();
    for (let group = 0; group < groups; group++) {
      const [left, right] = [cells[(group * heads) / groups].x + 0.5, cells[((group + 1) * heads) / groups - 1].x + atlas.size - 1.5];
      this.context.moveTo(left, ATLAS.top - 2.5);
      this.context.lineTo(left, ATLAS.top - 5.5);
      this.context.lineTo(right, ATLAS.top - 5.5);
      this.context.lineTo(right, ATLAS.top - 2.5);
    }
    this.context.stroke();
  },
};
