// The minimap: the whole matrix with a frame around the visible part; and, if keys are patches, the image.

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

// The image whose patches are the keys, colored by the weights of the row under the pointer, or of the pinned row.
const mapImage = {
  images: new Map(),

  async image(of) {
    if (!this.images.has(of)) {
      const image = new Image();
      image.src = of.image;
      this.images.set(of, image.decode().then(() => image));
    }
    return this.images.get(of);
  },

  async draw() {
    const of = keyAxis();
    $("map-image-box").hidden = !of.grid;
    if (!of.grid) return;
    const place = { run: state.run, call: state.call, head: state.head, scale: state.scale };
    const i = Math.min(callNow().Q - 1, Math.floor(state.hover?.row ?? state.query));
    this.requested = i;
    const [image, row, tracks] = await Promise.all([of.image ? this.image(of) : null, source.row(place.run, place.call, place.head, i), tracksOf(place.run)]);
    if (overtaken(place) || this.requested !== i) return;
    const canvas = $("map-image");
    const [rows, columns] = of.grid;
    const [width, height] = image ? [image.naturalWidth, image.naturalHeight] : [columns * 16, rows * 16];
    const scale = 480 / Math.max(width, height);
    Object.assign(canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    const context = canvas.getContext("2d");
    if (image) context.drawImage(image, 0, 0, canvas.width, canvas.height);
    const figures = rowNow(place.run, i);
    const [wide, high] = [canvas.width / columns, canvas.height / rows];
    let patch = 0, strongest = 0, own = -1;
    const patches = [];
    of.special.forEach((special, j) => {
      if (special) return;
      const p = weight(row.coarse[j], row.fine?.[j]) * figures.factor;
      if (of === queryAxis() && j === i) own = patch;
      if (p > (patches[strongest]?.p ?? -1)) strongest = patch;
      const others = othersOf(tracks, weight(row.coarse[j], row.fine?.[j]), [j]);
      patches.push({ p, at: step(p, state.scale, { ...figures, others }), code: row.coarse[j] });
      patch++;
    });
    patches.forEach(({ at, code }, number) => {
      if (code === MASKED) return;
      const alarm = { [NAN]: "--nan", [OUT]: "--out", [LEAK]: "--leak" }[code];
      Object.assign(context, { fillStyle: alarm ? css(alarm) : color(at, state.scale), globalAlpha: alarm ? 1 : image ? 0.25 + 0.6 * (at / 255) : 1 });
      context.fillRect((number % columns) * wide, Math.floor(number / columns) * high, wide, high);
    });
    context.globalAlpha = 1;
    if (own >= 0) {
      for (const [tint, thick] of [[css("--paper"), 6], [css("--accent"), 3]]) {
        Object.assign(context, { strokeStyle: tint, lineWidth: thick });
        context.strokeRect((own % columns) * wide, Math.floor(own / columns) * high, wide, high);
      }
    }
    const where = (number) => `row ${Math.floor(number / columns)}, column ${number % columns} of the image`;
    $("map-image-words").replaceChildren("Weights of ", ...named(queryAxis(), i), ` on the patches; the largest, ${percent(patches[strongest].p, 2)}, at ${where(strongest)}.`);
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", $("map-image-words").textContent);
  },
};
