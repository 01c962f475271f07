// Marks on the cells of a plot: gaps, numbers if cells are large enough, signs for invalid weights, and the pinned row and key.

const SIGNS = { [NAN]: "×", [OUT]: "±", [LEAK]: "!", [ZERO]: "0" };

/** Gaps between cells, signs, and numbers; only for single weights, and only for those on the screen. */
function drawCells(plot, context, painter, at, place, near, X, Y) {
  const { dpr, width, height } = plot;
  const [wide, high] = [at.kx * dpr, at.ky * dpr];
  const numbers = at.kx >= 46 && at.ky >= 20;
  const size = Math.min(13, 0.62 * Math.min(at.kx, at.ky)) * dpr;
  context.textAlign = "center";
  context.textBaseline = "middle";
  const [i1, j1] = [Math.min(plot.call.Q, plot.place.rows, Math.ceil(at.row + height / at.ky)), Math.min(plot.call.K, Math.ceil(at.column + width / at.kx))];
  for (const spot of near) {
    const tile = painter.numbers({ ...place, ...spot, level: 0 }, [0, 0]);
    if (!tile) continue;
    const [top, left] = [spot.row * TILE, spot.column * TILE];
    for (let i = Math.max(top, Math.floor(at.row)); i < Math.min(i1, top + tile.rows); i++) {
      const attended = painter.label ? 1 : attendedNow(i, painter.tracks());
      if (attended === undefined) continue; // not loaded yet
      for (let j = Math.max(left, Math.floor(at.column)); j < Math.min(j1, left + tile.columns); j++) {
        const cell = (i - top) * tile.columns + j - left;
        const text = painter.label ? painter.label(tile, cell, numbers) : labelOf(tile, cell, numbers);
        if (!text) continue;
        context.font = `${text.length > 1 ? 500 : 600} ${text.length > 1 ? 11 * dpr : size}px system-ui, sans-serif`;
        context.fillStyle = painter.inkAt ? painter.inkAt(tile, cell) : inkOf(plot, tile, cell, attended);
        context.fillText(text, X(j) + wide / 2, Y(i) + high / 2, wide - 2 * dpr);
      }
    }
  }
  context.strokeStyle = css("--paper");
  context.lineWidth = Math.max(1, Math.round(dpr));
  context.globalAlpha = Math.min(1, (Math.min(at.kx, at.ky) - 8) / 8);
  context.beginPath();
  for (let i = Math.ceil(at.row); i <= i1; i++) { const y = Math.round(Y(i)) - 0.5; context.moveTo(X(at.column), y); context.lineTo(X(j1), y); }
  for (let j = Math.ceil(at.column); j <= j1; j++) { const x = Math.round(X(j)) - 0.5; context.moveTo(x, Y(at.row)); context.lineTo(x, Y(i1)); }
  context.stroke();
  context.globalAlpha = 1;
}

/** The sign of an invalid weight; otherwise the number if there is space. */
function labelOf({ coarse, fine }, cell, numbers) {
  const code = coarse[cell];
  if (code === MASKED) return "";
  if (code !== ZERO && code < FIRST && code !== TINY) return SIGNS[code] ?? "";
  if (!numbers) return code === ZERO ? SIGNS[ZERO] : "";
  if (code === ZERO) return "0";
  return code === TINY ? "<10⁻⁶" : percent(weight(code, fine?.[cell]), 2);
}

/** A readable text color for a cell. */
function inkOf(plot, { coarse }, cell, attended) {
  const code = coarse[cell];
  if (INKS[code]) return css(INKS[code]);
  return ink(step(code === TINY ? 0 : COARSE[code], state.scale, attended), state.scale);
}

/** Lines through the pinned row and key, dashes for additional rows, and the pointer. */
function drawPins(plot, context, at) {
  const { left, top, width, height, place } = plot;
  const X = (key) => left + (key - at.column) * at.kx, Y = (row) => top + (row - at.row) * at.ky;
  const right = Math.min(left + width, X(plot.call.K)), bottom = Math.min(top + height, Y(Math.min(plot.call.Q, place.rows)));
  context.save();
  context.beginPath();
  context.rect(left - 3, top - 3, right - left + 6, bottom - top + 6);
  context.clip();
  const line = (tint, wide, path) => {
    for (const [style, thick, alpha] of [[css("--paper"), wide + 2, 0.55], [tint, wide, 1]]) {
      Object.assign(context, { strokeStyle: style, lineWidth: thick, globalAlpha: alpha });
      context.beginPath();
      path();
      context.stroke();
    }
  };
  const sides = (at, step) => (step >= 5 ? [at, at + 1] : [at + 0.5]); // of a row or key, or its middle
  const across = (rows) => { for (const row of rows) { context.moveTo(left, Y(row)); context.lineTo(right, Y(row)); } };
  const down = (keys) => { for (const key of keys) { context.moveTo(X(key), top); context.lineTo(X(key), bottom); } };
  if (place.hover) {
    Object.assign(context, { strokeStyle: css("--soft"), lineWidth: 1, globalAlpha: 0.55 });
    context.beginPath();
    across([Math.floor(place.hover.row) + 0.5]);
    down([Math.floor(place.hover.column) + 0.5]);
    context.stroke();
    context.globalAlpha = 1;
  }
  context.setLineDash([5, 4]);
  for (const pin of place.pins) line(css("--accent"), 1, () => across(sides(pin, at.ky)));
  context.setLineDash([]);
  line(css("--accent"), 1, () => across(sides(place.query, at.ky)));
  if (place.key !== null) {
    line(css("--accent"), 1, () => down(sides(place.key, at.kx)));
    const [x, y, w, h] = [X(place.key), Y(place.query), Math.max(7, at.kx), Math.max(7, at.ky)];
    line(css("--accent"), 2, () => context.rect(x + (at.kx - w) / 2, y + (at.ky - h) / 2, w, h));
  }
  context.restore();
}
