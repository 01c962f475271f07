// An image instead of a text: patches colored by their weights, over the image that they were cut from.

const patches = {
  strength: 65, image: null, of: null,

  build(box, pick) {
    this.chips = element("div", null, { className: "chips" });
    this.canvas = element("canvas", null, { id: "patches-canvas", tabIndex: 0, role: "img" });
    this.slider = element("input", null, { type: "range", min: 0, max: 100, value: this.strength, id: "patches-strength" });
    this.label = element("label", "image ", {}, this.slider, " weights");
    box.append(this.chips, this.canvas, this.label);
    this.slider.addEventListener("input", () => {
      this.strength = Number(this.slider.value);
      this.paint();
    });
    this.chips.addEventListener("click", (event) => {
      const token = event.target.closest("[data-token]")?.dataset.token;
      if (token !== undefined) pick(Number(token), event);
    });
    const at = (event) => {
      const { left, top, width, height } = this.canvas.getBoundingClientRect();
      const { wide, high } = this.tiled();
      const [x, y] = [((event.clientX - left) / width) * wide, ((event.clientY - top) / height) * high].map(Math.floor);
      const found = this.tokens.find((_, place) => this.cell(place).join() === `${clamp(x, 0, wide - 1)},${clamp(y, 0, high - 1)}`);
      return found ?? this.tokens.at(-1); // where the last row of tiles is not full
    };
    this.canvas.addEventListener("click", (event) => pick(at(event), event));
    this.canvas.addEventListener("pointermove", (event) => this.say(at(event)));
    this.canvas.addEventListener("pointerleave", () => reader.say());
    this.canvas.addEventListener("keydown", (event) => {
      const by = ARROWS[event.key];
      if (!by || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const [rows, columns] = this.of.patches.grid;
      const from = Math.max(0, this.tokens.indexOf(event.altKey ? (state.key ?? state.query) : reader.here()));
      const [row, column] = [clamp(Math.floor(from / columns) + by[0], 0, rows - 1), clamp((from % columns) + by[1], 0, columns - 1)];
      pick(this.tokens[row * columns + column], event);
    });
    new ResizeObserver(() => this.line && this.paint()).observe(this.canvas);
  },

  say(i) { reader.readout.textContent = `${this.called(i)}: ${describe(this.line, i)}`; },
  called(i) {
    const place = this.tokens.indexOf(i);
    return place < 0 ? `${quote(this.of, i, 40)} (${i})` : `${placeWord(this.of)} ${i}, row ${Math.floor(place / this.of.patches.grid[1])}, column ${place % this.of.patches.grid[1]}`;
  },

  /** How the patches are placed: square tiles, which a processor cut an image into, fill a rectangle; otherwise row by row. Sizes in patches. */
  tiled() {
    const [rows, columns] = this.of.patches.grid;
    const tiles = rows > 2 * columns && rows % columns === 0 ? rows / columns : 1, across = Math.ceil(Math.sqrt(tiles));
    return { tiles, across, columns, tall: rows / tiles, wide: across * columns, high: (Math.ceil(tiles / across) * rows) / tiles };
  },
  /** The column and the row of a patch as it is drawn. */
  cell(place) {
    const { across, columns, tall } = this.tiled(), row = Math.floor(place / columns), tile = Math.floor(row / tall);
    return [(tile % across) * columns + (place % columns), Math.floor(tile / across) * tall + (row % tall)];
  },

  async show(line) {
    this.line = line;
    if (line.of !== this.of) {
      this.of = line.of;
      this.tokens = line.of.patches.places;
      this.image = null;
      if (line.of.patches.image) {
        const image = new Image();
        image.src = line.of.patches.image;
        await image.decode();
        this.image = image;
      }
    }
    this.label.hidden = !this.image;
    this.chips.replaceChildren(...line.of.tokens.flatMap((_, i) => {
      if (!line.of.grid || !line.of.special[i]) return []; // in a text, they are among the words
      const chip = button(wordOf(line.of, i, 20), null, { className: "token special" });
      chip.dataset.token = i;
      reader.paint(chip, i);
      return [chip];
    }));
    this.paint();
    const here = reader.here();
    const size = `${line.of.patches.grid[0]} × ${line.of.patches.grid[1]}`;
    this.canvas.setAttribute("aria-label", `The image in ${size} patches, colored by the weights. ${this.called(here)}: ${describe(line, here)}. Arrow keys choose a patch.`);
  },

  paint() {
    const { tiles, columns, tall, wide, high } = this.tiled();
    const ratio = this.image && tiles === 1 ? this.image.naturalHeight / this.image.naturalWidth : high / wide;
    Object.assign(this.canvas.style, { aspectRatio: `${1 / ratio}`, maxWidth: `${70 / ratio}vh` });
    const width = Math.round(this.canvas.clientWidth * devicePixelRatio);
    if (!width) return;
    const height = Math.round(width * ratio);
    [this.canvas.width, this.canvas.height] = [width, height];
    const context = this.canvas.getContext("2d");
    const [w, h] = [width / wide, height / high];
    for (let tile = 0; this.image && tile < tiles; tile++) {
      const [x, y] = this.cell(tile * tall * columns), part = this.image.naturalHeight / tiles;
      context.drawImage(this.image, 0, tile * part, this.image.naturalWidth, part, x * w, y * h, columns * w, tall * h);
    }
    const { line } = this;
    const solid = { [ZERO]: css("--zero"), [NAN]: css("--nan"), [OUT]: css("--out"), [LEAK]: css("--leak") };
    const strength = this.image ? this.strength / 100 : 1;
    this.tokens.forEach((i, place) => {
      const [x, y] = this.cell(place).map((at, across) => at * (across ? h : w));
      const code = line.hidden(i) ? MASKED : line.code[i];
      context.globalAlpha = [MASKED, NAN, OUT, LEAK].includes(code) ? 1 : strength; // invalid weights are opaque
      context.fillStyle = code === MASKED ? hatching(1) : solid[code] ?? color(step(code === TINY ? 0 : line.p[i], state.scale, line.attended), state.scale);
      context.fillRect(x, y, w + 0.5, h + 0.5);
      context.globalAlpha = 1;
    });
    const ring = (i, stroke, dashed) => {
      const place = this.tokens.indexOf(i);
      if (place < 0) return;
      const thick = 2 * devicePixelRatio;
      context.setLineDash(dashed ? [2 * thick, thick] : []);
      for (const [color, size] of [[css("--paper"), 2 * thick], [stroke, thick]]) {
        context.strokeStyle = color;
        context.lineWidth = size;
        context.strokeRect(this.cell(place)[0] * w + thick / 2, this.cell(place)[1] * h + thick / 2, w - thick, h - thick);
      }
    };
    if (line.of === queryAxis()) for (const pin of [...state.pins, state.query]) ring(pin, css("--accent"), false);
    if (line.of === keyAxis() && state.key !== null) ring(state.key, css("--ink"), true);
  },
};
