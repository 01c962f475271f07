// The dot product of two rows: as arrows with their angle and a shadow, and as a sum of products.
//
// Rows of two numbers are drawn as they are, and can be moved. Longer ones are drawn in the plane that both span, with
// their exact lengths and angle.

visuals["dot-product"] = function dotProductVisual(root, { a, b, names = ["a", "b"] }) {
  const state = { a: [...a], b: [...b] };
  const flat = a.length === 2;
  const kinds = ["q", "k"];
  const [one, two] = names;
  const number = Object.fromEntries(["length-a", "length-b", "cosine", "angle", "product", "shadow", "by-cosine"].map((name) => [name, shown(name, 0)]));
  const length = (row) => Math.hypot(...row);
  const measured = ({ a, b }) => {
    const [product, sizes] = [dot(a, b), [length(a), length(b)]];
    const cosine = sizes[0] && sizes[1] ? Math.min(1, Math.max(-1, product / sizes[0] / sizes[1])) : NaN;
    return { product, sizes, cosine, angle: (Math.acos(cosine) * 180) / Math.PI };
  };

  const plane = planeOf({ ...corners(), label: `${one} and ${two} as arrows from one point`, free: flat });
  const shadow = draw("line", { class: "dot-shadow", "aria-hidden": "true" });
  const drop = draw("line", { class: "dot-drop", "aria-hidden": "true" });
  const arc = draw("path", { class: "dot-arc", "aria-hidden": "true" });
  plane.svg.append(shadow, drop, arc);
  const arrows = names.map((name, at) => plane.arrow(name, kinds[at]));
  const handles = flat ? names.map((name, at) => plane.handle(`tip of ${name}: arrow keys move it`, kinds[at], (to) => change({ [at ? "b" : "a"]: to }))) : [];

  const fields = flat ? ["a", "b"].map((row, at) => [0, 1].map((place) => numberField(`${row}-${place}`, `${names[at]}[${place}]`, state[row][place], (value) => change({ [row]: state[row].with(place, value) })))) : [];
  const products = flat ? [0, 1].map((place) => shown(`product-${place}`, 0, 4)) : [];
  const words = make("p", { className: "dot-words" });
  const th = (scope, text, kind = "") => make("th", { scope, className: kind }, text);
  const line = (name, meaning, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value, make("span", { className: "dot-meaning" }, meaning)));
  const turn = (by) => change({ b: [state.a[0] * Math.cos(by) - state.a[1] * Math.sin(by), state.a[0] * Math.sin(by) + state.a[1] * Math.cos(by)].map((value) => Number(value.toFixed(9))) });
  const preset = (text, by) => button(text, () => turn(by));
  root.append(make("div", { className: "dot-sides" }, plane.svg, make("div", {},
    ...(flat ? [make("table", { className: "dot-table" },
      make("thead", {}, make("tr", {}, th("col", "place"), th("col", "0"), th("col", "1"), th("col", "sum"))),
      make("tbody", {}, ...fields.map((row, at) => make("tr", {}, th("row", names[at], kinds[at]), ...row.map((field) => make("td", {}, field)), make("td", {}))),
        make("tr", { className: "dot-products" }, th("row", `${one}[i] · ${two}[i]`), ...products.map((each) => make("td", {}, each)), make("td", {}, number.product))))]
      : [make("p", { className: "dot-long" }, `${one} · ${two}, the sum of ${a.length} products: `, number.product)]),
    words,
    make("dl", {},
      line(`|${one}|`, "length", number["length-a"]), line(`|${two}|`, "length", number["length-b"]),
      line("angle", "degrees", number.angle), line("cosine", "of the angle", number.cosine),
      line("projection", `of ${two} onto ${one}: |${two}| × cosine`, number.shadow), line("product", `|${one}| × |${two}| × cosine`, number["by-cosine"])),
    ...(flat ? [make("div", { className: "controls dot-presets", role: "group", "aria-label": `Turn ${two}` }, make("span", {}, `Put ${two}`), preset(`along ${one}`, 0), preset("at a right angle", Math.PI / 2), preset("against it", Math.PI))] : []),
  )));

  /** The part of the plane that is drawn: as much in all directions where arrows move, otherwise what they need. */
  function corners() {
    if (flat) {
      const most = Math.ceil(1.2 * Math.max(3, ...a.map(Math.abs), ...b.map(Math.abs)));
      return { low: [-most, -most], high: [most, most] };
    }
    const { sizes, cosine, angle } = measured(state);
    const along = sizes[1] * (Number.isNaN(cosine) ? 1 : cosine);
    const up = sizes[1] * Math.sin(((Number.isNaN(angle) ? 0 : angle) * Math.PI) / 180);
    const most = Math.max(...sizes, 1e-9);
    return { low: [Math.min(0, along) - 0.15 * most, -0.2 * most], high: [Math.max(sizes[0], along) + 0.15 * most, Math.max(up, 0.25 * most) + 0.15 * most] };
  }

  function change(part) {
    Object.assign(state, part);
    const { product, sizes, cosine, angle } = measured(state);
    const known = !Number.isNaN(cosine);
    const radians = (angle * Math.PI) / 180;
    const tips = flat ? [state.a, state.b] : [[sizes[0], 0], known ? [sizes[1] * cosine, sizes[1] * Math.sin(radians)] : [sizes[1], 0]];
    tips.forEach((tip, at) => { arrows[at].to(tip); handles[at]?.to(tip); });
    const along = known ? sizes[1] * cosine : 0;
    const foot = known ? tips[0].map((value) => (value / sizes[0]) * along) : [0, 0];
    place(shadow, { x1: plane.x(0), y1: plane.y(0), x2: plane.x(foot[0]), y2: plane.y(foot[1]) });
    place(drop, { x1: plane.x(tips[1][0]), y1: plane.y(tips[1][1]), x2: plane.x(foot[0]), y2: plane.y(foot[1]) });
    place(arc, { d: known ? arcOf(tips, Math.min(26, 0.6 * plane.unit * Math.min(...sizes)), product) : "" });
    fields.forEach((row, at) => row.forEach((field, spot) => showField(field, tips[at][spot])));
    products.forEach((each, at) => show(each, state.a[at] * state.b[at]));
    [number["length-a"], number["length-b"]].forEach((each, at) => show(each, sizes[at]));
    for (const [name, value] of Object.entries({ angle, cosine, shadow: known ? along : NaN })) show(number[name], value, known ? digits(value) : "—");
    show(number.product, product);
    show(number["by-cosine"], known ? sizes[0] * sizes[1] * cosine : 0);
    words.replaceChildren(...said(product, known, Math.abs(product) < 1e-9 * sizes[0] * sizes[1]));
    place(plane.svg, { "aria-label": `${one} and ${two} as arrows from one point: lengths ${digits(sizes[0])} and ${digits(sizes[1])}, ${known ? `${digits(angle)} degrees apart` : "one of them without a direction"}` });
  }

  function said(product, known, right) {
    if (!known) return [make("b", {}, "Zero: "), "a row of zeros has no direction, and its product with every row is 0."];
    if (right) return [make("b", {}, "Zero: "), "the arrows are at a right angle."];
    return product > 0 ? [make("b", {}, "Positive: "), "the arrows are less than 90° apart."] : [make("b", {}, "Negative: "), "the arrows are more than 90° apart."];
  }

  /** The angle between the arrows: an arc, or the corner of a square where it is a right one. */
  function arcOf([from, to], radius, product) {
    const units = [from, to].map((tip) => tip.map((value) => (value / length(tip)) * radius));
    const at = ([right, up]) => `${(plane.x(0) + right).toFixed(2)} ${(plane.y(0) - up).toFixed(2)}`;
    if (Math.abs(product) < 1e-9 * length(from) * length(to)) {
      const [p, q] = units.map((unit) => unit.map((value) => 0.6 * value));
      return `M${at(p)}L${at(add(p, q))}L${at(q)}`;
    }
    const left = from[0] * to[1] - from[1] * to[0] >= 0;
    return `M${at(units[0])}A${radius} ${radius} 0 0 ${left ? 0 : 1} ${at(units[1])}`;
  }
  change({});
  return { state, change };
};
