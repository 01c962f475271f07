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

  /** The same as a colored bitmap, one pixel per cell; undefined until the codes and the figures of its rows are loaded. */
  bitmap(place, fold, look) {
    const name = `${tileName(place)}|${fold}|${look.name}`;
    const found = this.bitmaps.get(name);
    if (found) return found;
    const tile = this.at(place, fold);
    if (!tile || (look.rows && !look.tracks)) return undefined;
    return this.bitmaps.set(name, bitmapOf(tile.rows, tile.columns, colored(tile, place, fold, look)));
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

/** The current coloring. rows: whether colors depend on the row, which needs `tracks`. */
const lookNow = (tracks) => ({ name: `${state.scale}|${theme()}`, scale: state.scale, rows: Boolean(SCALES[state.scale].perRow), tracks });

/** How many keys row i may attend to, if its colors depend on it; undefined until its figures are loaded. */
function attendedNow(i, tracks) {
  if (!SCALES[state.scale].perRow) return 1;
  return tracks?.attended[i];
}

const looks = new Memory(8);
/** The palette of a look, and the 256 colors of its ramp as pixels. */
function paletteOf(look) {
  return looks.get(look.name, () => ({
    plain: palette(look.scale),
    ramp: Uint32Array.from({ length: 256 }, (_, at) => pixelOf(rgb(at, look.scale))),
  }));
}

function colored(tile, place, fold, look) {
  const { coarse, rows, columns } = tile;
  const { plain, ramp } = paletteOf(look);
  const pixels = new Uint32Array(rows * columns);
  if (!look.rows) {
    for (let at = 0; at < pixels.length; at++) pixels[at] = plain[coarse[at]];
    return pixels;
  }
  const call = runs[place.n].calls[place.call];
  const [high, wide] = [2 ** (place.level + fold[0]), 2 ** (place.level + fold[1])];
  const lookup = plain.slice();
  let last = NaN;
  for (let r = 0; r < rows; r++) {
    const i = place.row * TILE * 2 ** place.level + r * high;
    const several = look.tracks.attended.subarray(i, i + high); // rows of the matrix in this row of cells
    const summed = place.level && place.pool === "share" ? Math.min(wide, call.K) : 1; // keys of a cell
    const attended = several.reduce((sum, count) => sum + count, 0) / several.length / summed;
    if (attended !== last) for (let code = FIRST; code < 256; code++) lookup[code] = ramp[step(COARSE[code], look.scale, attended)];
    last = attended;
    for (let c = 0; c < columns; c++) pixels[r * columns + c] = lookup[coarse[r * columns + c]];
  }
  return pixels;
}
