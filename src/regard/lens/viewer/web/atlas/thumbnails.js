// What the buttons of the overview of heads show: a thumbnail, or a figure on its color; thumbnails only of visible calls.

const thumbnails = {
  strips: new Memory(200), // the thumbnails of all heads of a call, side by side
  round: 0, // of painting; data that arrives for an earlier round is dropped
  done: new Set(), // calls whose thumbnails are drawn in this round

  /** Paints all heads anew, or only calls that have become visible; resolves when all of them are painted. */
  async paint(anew) {
    const matrices = state.metric === "matrix";
    if (anew) {
      this.round++;
      this.done.clear();
      for (const cell of atlas.cells) {
        cell.button.style.cssText = "";
        cell.button.classList.remove("hatch");
        if (!matrices) this.figure(cell);
      }
    }
    if (matrices) await Promise.all(this.inSight().map((call) => this.drawCall(call, this.round)));
  },

  inSight() {
    const box = $("atlas-box");
    const seen = ({ offsetTop }) => offsetTop + atlas.size > box.scrollTop - 200 && offsetTop < box.scrollTop + box.clientHeight + 200;
    return atlas.rows.flatMap(({ node }, call) => (seen(node) && !this.done.has(call) ? [call] : []));
  },

  async drawCall(call, round) {
    this.done.add(call);
    const { run, scale } = state;
    const { strip, columns, rows, wrong } = await this.strips.get(`${run} ${call} ${scale} ${theme()}`, () => this.strip(run, call, scale));
    if (round !== this.round) return;
    atlas.rows[call].buttons.forEach((button, head) => {
      const canvas = button.querySelector("canvas") ?? element("canvas");
      Object.assign(canvas, { width: columns, height: rows });
      button.replaceChildren(canvas, ...this.badge(call, head, wrong[head]));
      button.classList.toggle("hatch", atlas.size >= 20); // behind masked cells
      canvas.classList.toggle("smooth", columns > atlas.size || rows > atlas.size);
      canvas.getContext("2d").drawImage(strip, head * columns, 0, columns, rows, 0, 0, columns, rows);
    });
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
          if (INVALID.has(code)) wrong[head] = Math.max(wrong[head], code);
        }
      }
    }
    strip.getContext("2d").putImageData(image, 0, 0);
    return { strip, rows, columns, wrong };
  },

  /** The color of a figure, and its value, which is shown if the cell is large enough. */
  figure({ call, head, button }) {
    const value = metrics.value(state.metric, call, head);
    const at = value === null ? 0 : step(value / metrics.top(state.metric), "linear");
    button.style.background = value === null ? css("--nan") : color(at, "linear");
    button.style.color = value === null ? css("--on-nan") : ink(at, "linear");
    button.replaceChildren(element("span", metrics.short(state.metric, value)), ...this.badge(call, head));
  },

  /** The mark of findings of the audit and of invalid weights; none if there are none. */
  badge(call, head, wrong = 0) {
    const worst = badges.worst(badges.at(call, head));
    const kind = worst === "fault" ? "leak" : { [LEAK]: "leak", [NAN]: "nan", [OUT]: "out" }[wrong] ?? (worst === "warning" ? "out" : null);
    return kind ? [element("i", undefined, { className: `badge ${kind}` })] : [];
  },
};
