// The minimap: the whole matrix with a frame around the visible part.

const minimap = {
  build(plot) {
    const canvas = $("minimap");
    const center = (event) => {
      const box = canvas.getBoundingClientRect();
      const at = plot.view();
      const [x, y] = [clamp((event.clientX - box.left) / box.width, 0, 1), clamp((event.clientY - box.top) / box.height, 0, 1)];
      plot.show({ row: y * plot.call.Q - plot.height / at.ky / 2, column: x * plot.call.K - at.span / 2, span: at.span });
    };
    canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); center(event); });
    canvas.addEventListener("pointermove", (event) => { if (canvas.hasPointerCapture(event.pointerId)) center(event); });
  },

  draw(plot, at) {
    const canvas = $("minimap");
    const { Q, K } = plot.call;
    const [width, height] = plot.squared ? (Q > K ? [Math.max(20, (120 * K) / Q), 120] : [120, Math.max(20, (120 * Q) / K)]) : [120, 90];
    const { dpr } = plot;
    if (this.size !== `${width} ${height} ${dpr}`) { // resizing a canvas triggers layout, so it is done only on changes
      Object.assign(canvas, { width: Math.round(width * dpr), height: Math.round(height * dpr) });
      Object.assign(canvas.style, { width: `${width}px`, height: `${height}px` });
      this.size = `${width} ${height} ${dpr}`;
    }
    const context = canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, canvas.width, canvas.height);
    context.save();
    context.beginPath();
    const rows = Math.min(Q, rowsNow());
    const { detail, spots } = plot.whole();
    const { painter } = plot.parts()[0];
    const [x, y] = [(key) => (key * canvas.width) / K, (row) => (row * canvas.height) / Q];
    const [high, wide] = [2 ** (detail.level + detail.fold[0]), 2 ** (detail.level + detail.fold[1])];
    context.rect(0, 0, canvas.width, y(rows));
    context.clip();
    Object.assign(context, { imageSmoothingEnabled: x(wide) < 1 && y(high) < 1, imageSmoothingQuality: "high" });
    for (const spot of spots) {
      const place = { call: state.call, head: state.head, pool: state.pool, level: detail.level, ...spot };
      const [i, j] = [spot.row * TILE * 2 ** detail.level, spot.column * TILE * 2 ** detail.level];
      const bitmap = painter.bitmap(place, detail.fold);
      if (!bitmap) continue;
      context.fillStyle = hatching(1);
      context.fillRect(x(j), y(i), x(bitmap.width * wide), y(bitmap.height * high));
      context.drawImage(bitmap, x(j), y(i), x(bitmap.width * wide), y(bitmap.height * high));
      for (const [r, c, code] of painter.codes(place, detail.fold).alarms.cells) {
        context.fillStyle = plot.palette[{ [OUT]: "out", [NAN]: "nan", [LEAK]: "leak" }[code]];
        context.fillRect(x(j + (c + 0.5) * wide) - 2 * dpr, y(i + (r + 0.5) * high) - 2 * dpr, 4 * dpr, 4 * dpr);
      }
    }
    context.restore();
    const seen = [Math.min(K, at.span), Math.min(Q, plot.height / at.ky)];
    context.setTransform(canvas.width / K, 0, 0, canvas.height / Q, 0, 0);
    context.beginPath();
    context.rect(at.column, at.row, ...seen);
    context.setTransform(1, 0, 0, 1, 0, 0);
    for (const [tint, thick] of [[plot.palette.paper, 4], [plot.palette.accent, 2]]) {
      Object.assign(context, { strokeStyle: tint, lineWidth: thick * dpr });
      context.stroke();
    }
    const range = (first, count, most) => `${Math.floor(first).toLocaleString("en")} to ${Math.min(most - 1, Math.ceil(first + count) - 1).toLocaleString("en")}`;
    const said = `The whole matrix; the map shows rows ${range(at.row, seen[1], Q)} and keys ${range(at.column, seen[0], K)}`;
    if (canvas.getAttribute("aria-label") !== said) canvas.setAttribute("aria-label", said);
  },
};
