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
      const [rows, columns] = this.of.grid;
      const [row, column] = [((event.clientY - top) / height) * rows, ((event.clientX - left) / width) * columns].map(Math.floor);
      return this.tokens[clamp(row, 0, rows - 1) * columns + clamp(column, 0, columns - 1)];
    };
    this.canvas.addEventListener("click", (event) => pick(at(event), event));
    this.canvas.addEventListener("pointermove", (event) => this.say(at(event)));
    this.canvas.addEventListener("pointerleave", () => reader.say());
    this.canvas.addEventListener("keydown", (event) => {
      const by = ARROWS[event.key];
      if (!by || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      const [rows, columns] = this.of.grid;
      const from = Math.max(0, this.tokens.indexOf(event.altKey ? (state.key ?? state.query) : reader.here()));
      const [row, column] = [clamp(Math.floor(from / columns) + by[0], 0, rows - 1), clamp((from % columns) + by[1], 0, columns - 1)];
      pick(this.tokens[row * columns + column], event);
    });
    new ResizeObserver(() => this.line && this.paint()).observe(this.canvas);
  },

  say(i) { reader.readout.textContent = `${this.called(i)}: ${describe(this.line, i)}`; },
  called(i) {
    const place = this.tokens.indexOf(i);
    return place < 0 ? `${quote(this.of, i, 40)} (${i})` : `patch ${i}, row ${Math.floor(place / this.of.grid[1])}, column ${place % this.of.grid[1]}`;
  },

  async show(line) {
    this.line = line;
    if (line.of !== this.of) {
      this.of = line.of;
      this.tokens = line.of.tokens.map((_, i) => i).filter((i) => !line.of.special[i]);
      this.image = null;
      if (line.of.image) {
        const image = new Image();
        image.src = line.of.image;
        await image.decode();
        this.image = image;
      }
    }
    this.label.hidden = !this.image;
    this.chips.replaceChildren(...line.of.tokens.flatMap((_, i) => {
      if (!line.of.special[i]) return [];
      const chip = button(wordOf(line.of, i, 20), null, { className: "token special" });
      chip.dataset.token = i;
      reader.paint(chip, i);
      return [chip];
    }));
    this.paint();
    const here = reader.here();
    const size = `${line.of.grid[0]} × ${line.of.grid[1]}`;
    this.canvas.setAttribute("aria-label", `The image in ${size} patches, colored by the weights. ${this.called(here)}: ${describe(line, here)}. Arrow keys choose a patch.`);
  },

  paint() {
    const [rows, columns] = this.of.grid;
    const ratio = this.image ? this.image.naturalHeight / this.image.naturalWidth : rows / columns;
    this.canvas.style.aspectRatio = `${1 / ratio}`;
    const width = Math.round(this.canvas.clientWidth * devicePixelRatio);
    if (!width) return;
    const height = Math.round(width * ratio);
    [this.canvas.width, this.canvas.height] = [width, height];
    const context = this.canvas.getContext("2d");
    if (this.image) context.drawImage(this.image, 0, 0, width, height);
    const [w, h] = [width / columns, height / rows];
    const { line } = this;
    const solid = { [ZERO]: css("--zero"), [NAN]: css("--nan"), [OUT]: css("--out"), [LEAK]: css("--leak") };
    const strength = this.image ? this.strength / 100 : 1;
    this.tokens.forEach((i, place) => {
      const [x, y] = [(place % columns) * w, Math.floor(place / columns) * h];
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
        context.strokeRect((place % columns) * w + thick / 2, Math.floor(place / columns) * h + thick / 2, w - thick, h - thick);
      }
    };
    if (line.of === queryAxis()) for (const pin of [...state.pins, state.query]) ring(pin, css("--accent"), false);
    if (line.of === keyAxis() && state.key !== null) ring(state.key, css("--ink"), true);
  },
};
