// What the buttons of the overview of heads show: a thumbnail, or a figure on its color; thumbnails only of visible calls.

const thumbnails = {
  drawn: new Memory(200), // the thumbnails of all heads of a call
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
    const { bitmaps, columns, rows, wrong } = await this.drawn.get(`${run} ${call} ${scale} ${theme()}`, () => this.draw(run, call, scale));
    if (round !== this.round) return;
    atlas.rows[call].buttons.forEach((button, head) => {
      const canvas = button.querySelector("canvas") ?? element("canvas");
      Object.assign(canvas, { width: columns, height: rows });
      button.replaceChildren(canvas, ...this.badge(call, head, wrong[head]));
      button.classList.toggle("hatch", atlas.size >= 20); // behind masked cells
      canvas.classList.toggle("smooth", columns > atlas.size || rows > atlas.size);
      Object.assign(canvas.getContext("2d"), { imageSmoothingEnabled: false }).drawImage(bitmaps[head], 0, 0, columns, rows, 0, 0, columns, rows);
    });
  },

  /** The thumbnails of a call in the colors of the scale; scales relative to a row use the rows of the thumbnail. */
  async draw(run, call, scale) {
    const of = valuedThumbnails(run, call), { codes, rows, columns } = await sourceOf(of).overview(of, call);
    const size = rows * columns, wrong = [], bitmaps = [];
    for (let head = 0; head < runs[run].calls[call].heads; head++) {
      const own = codes.subarray(head * size, (head + 1) * size);
      const attended = (row) => own.subarray(row * columns, (row + 1) * columns).reduce((count, code) => count + (code !== MASKED), 0);
      bitmaps.push(bitmapOf(rows, columns, pixelsOf(own, columns, scale, attended)));
      wrong.push([LEAK, OUT, NAN].find((code) => own.includes(code)));
    }
    return { bitmaps, rows, columns, wrong };
  },

  /** The color of a figure, and its value, which is shown if the cell is large enough. */
  figure({ call, head, button }) {
    const value = metrics.value(state.metric, call, head);
    const at = value === null ? 0 : step(value / metrics.top(state.metric), "linear");
    const unknown = state.metric === "differs" ? ["--raised", "--ink"] : ["--nan", "--on-nan"];
    button.style.background = value === null ? css(unknown[0]) : color(at, "linear");
    button.style.color = value === null ? css(unknown[1]) : ink(at, "linear");
    button.replaceChildren(element("span", metrics.short(state.metric, value)), ...this.badge(call, head));
  },

  /** The mark of findings of the audit and of invalid weights; none if there are none. */
  badge(call, head, wrong = 0) {
    const worst = badges.worst(badges.at(call, head));
    const kind = worst === "fault" ? "leak" : { [LEAK]: "leak", [NAN]: "nan", [OUT]: "out" }[wrong] ?? (worst === "warning" ? "out" : null);
    return kind ? [element("i", undefined, { className: `badge ${kind}` })] : [];
  },
};
