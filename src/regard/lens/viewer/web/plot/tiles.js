// Tiles of a map: caches of their codes and colored bitmaps, and a queue that drops outdated requests.
//
// A place is {n, call, head, pool, level, row, column}; a fold [y, x] merges 2^y × 2^x cells of a tile, for plots with different
// scales of rows and keys.

/** The smallest level at which a cell covers at least so many positions. */
const levelFor = (positions) => Math.max(0, Math.ceil(Math.log2(positions) - 1e-6));
/** The level at which one tile covers the whole matrix. */
const topLevel = ({ Q, K }) => levelFor(Math.max(Q, K) / TILE);
const tileName = ({ n, call, head, pool, level, row, column }) => `${n}-${call}-${head}-${level ? pool : "weights"}-${level}-${row}-${column}`;

const tiles = {
  codes: new Memory(100e6, ({ rows, columns }) => 3 * rows * columns), // bytes
  bitmaps: new Memory(150e6, ({ width, height, rows, columns }) => (width ? 4 * width * height : 7 * rows * columns)),
  failed: new Map(), flying: new Map(), queues: new Map(), landed: new Set(),

  /** Loads the codes of a tile. */
  load(place) {
    const name = tileName(place);
    const found = this.codes.get(name);
    if (found) return Promise.resolve(found);
    if (!this.flying.has(name)) {
      const { n, call, head, pool, level, row, column } = place;
      this.flying.set(name, sourceOf(n).tile(n, call, head, pool, level, row, column)
        .then((tile) => this.codes.set(name, { ...tile, alarms: alarmsOf(tile) }))
        .finally(() => this.flying.delete(name)));
    }
    return this.flying.get(name);
  },

  /** Sets the tiles that `owner` needs, the most urgent first; earlier requests that have not started are dropped. */
  want(owner, places) {
    this.queues.set(owner, places);
    this.next();
  },

  next() {
    for (const places of this.queues.values()) {
      while (this.flying.size < 4 && places.length) {
        const place = places.shift();
        const name = tileName(place);
        if (this.codes.get(name) || this.flying.has(name) || this.error(place)) continue;
        this.load(place).then(() => this.failed.delete(name), (error) => this.failed.set(name, { error, at: performance.now() })).then(() => {
          for (const listener of this.landed) listener();
          this.next();
        });
      }
    }
  },

  /** The error of a tile that could not be loaded; it is retried after three seconds. */
  error(place) {
    const found = this.failed.get(tileName(place));
    return found && performance.now() - found.at < 3000 ? found.error : undefined;
  },

  /** The folded codes of a place if they are loaded, otherwise undefined. */
  at(place, fold) {
    const tile = this.codes.get(tileName(place));
    if (!tile || !(fold[0] || fold[1])) return tile;
    const name = `${tileName(place)}|${fold}`;
    return this.bitmaps.get(name) ?? this.bitmaps.set(name, folded(tile, place, fold));
  },

  /** The same as a colored bitmap, one pixel per cell; undefined until the codes are loaded, and the figures of its rows if colors depend on them. */
  bitmap(place, fold, tracks) {
    const name = `${tileName(place)}|${fold}|${state.scale}|${theme()}`;
    const found = this.bitmaps.get(name);
    if (found) return found;
    const tile = this.at(place, fold), [high, wide] = fold.map((more) => 2 ** (place.level + more));
    if (!tile || (SCALES[state.scale].perRow && !tracks)) return undefined;
    const summed = place.level && place.pool === "share" ? Math.min(wide, runs[place.n].calls[place.call].K) : 1; // keys of a cell
    const attended = (r) => {
      const i = place.row * TILE * 2 ** place.level + r * high, rows = tracks.attended.subarray(i, i + high); // of the matrix
      return rows.reduce((sum, count) => sum + count, 0) / rows.length / summed;
    };
    return this.bitmaps.set(name, bitmapOf(tile.rows, tile.columns, pixelsOf(tile.coarse, tile.columns, state.scale, attended)));
  },
};

/** Counts the cells of a tile with invalid weights, and lists the first of them, the most severe kind last. */
function alarmsOf({ coarse, columns }) {
  const found = { cells: [] };
  for (const code of WORSE) {
    found[code] = 0;
    for (let at = coarse.indexOf(code); at >= 0; at = coarse.indexOf(code, at + 1)) {
      if (found[code]++ < 200) found.cells.push([Math.floor(at / columns), at % columns, code]);
    }
  }
  return found;
}
const WORSE = [OUT, NAN, LEAK];

/** Merges cells of a tile with the same pooling as the tile itself. */
function folded(tile, { n, call, pool, level, row }, [y, x]) {
  const { Q } = runs[n].calls[call];
  const [high, wide, size] = [2 ** y, 2 ** x, 2 ** level];
  const [rows, columns] = [Math.ceil(tile.rows / high), Math.ceil(tile.columns / wide)];
  const weighs = (i) => Math.min(size, Q - (row * TILE + i) * size); // rows of the matrix in this row of cells
  const coarse = Uint8Array.from({ length: rows * columns }, (_, at) => {
    const [top, left] = [Math.floor(at / columns) * high, (at % columns) * wide];
    return pooled(tile, tile.columns, pool, top, left, Math.min(tile.rows, top + high), Math.min(tile.columns, left + wide), weighs);
  });
  const made = { rows, columns, coarse, exact: tile.exact };
  return { ...made, alarms: alarmsOf(made) };
}

/** Pixels as a bitmap. */
function bitmapOf(rows, columns, pixels) {
  const canvas = new OffscreenCanvas(columns, rows);
  canvas.getContext("2d").putImageData(new ImageData(new Uint8ClampedArray(pixels.buffer), columns, rows), 0, 0);
  return canvas.transferToImageBitmap();
}

/** How many keys row i may attend to, if its colors depend on it; undefined until its figures are loaded. */
function attendedNow(i, tracks) {
  if (!SCALES[state.scale].perRow) return 1;
  return tracks?.attended[i];
}

/** The pixels of rows of codes in the colors of a scale. attended(row): how many keys it may attend to, for scales relative to that. */
function pixelsOf(coarse, columns, scale, attended) {
  const pixels = new Uint32Array(coarse.length), palettes = new Map();
  for (let row = 0, at = 0; at < coarse.length; row++) {
    const count = SCALES[scale].perRow ? attended(row) : 1;
    if (!palettes.has(count)) palettes.set(count, palette(scale, count));
    const tints = palettes.get(count);
    for (const end = at + columns; at < end; at++) pixels[at] = tints[coarse[at]];
  }
  return pixels;
}
