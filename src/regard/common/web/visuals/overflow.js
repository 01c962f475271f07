// Overflow: a softmax with its exponentials, as float16, float32 and float64 hold them.

const numberFormats = {
  float16: { rounded: toFloat16, end: Math.log(65504) },
  float32: { rounded: Math.fround, end: Math.log(3.4028234663852886e38) },
  float64: { rounded: (value) => value, end: Math.log(Number.MAX_VALUE) },
};

/** The nearest float16: 11 bits from 2⁻¹⁴ on, steps of 2⁻²⁴ below, infinite from 65520 on; ties go to the even one. */
function toFloat16(value) {
  if (!Number.isFinite(value) || value === 0) return value;
  const size = Math.abs(value);
  if (size >= 65520) return Math.sign(value) * Infinity;
  const step = 2 ** (Math.max(Math.floor(Math.log2(size)), -14) - 10);
  const below = Math.floor(size / step);
  const over = size / step - below;
  return Math.sign(value) * step * (below + (over > 0.5 || (over === 0.5 && below % 2) ? 1 : 0));
}

visuals["overflow"] = function overflowVisual(root, data) {
  const names = Object.keys(numberFormats);
  const { scores, labels = scores.map((_, at) => `key ${at}`) } = data;
  const cell = (tag, ...children) => make(tag, tag === "th" ? { scope: "row" } : {}, ...children);
  const exponentials = scores.map((_, at) => names.map((name) => shown(`${name}-${at}`, 0)));
  const sums = names.map((name) => shown(`${name}-sum`, 0));
  const first = make("caption", {});
  const said = make("p", { className: "overflow-said" });
  make("table", { className: "overflow-formats" }, first,
    make("thead", {}, make("tr", {}, ...["in", ...names].map((name) => make("th", { scope: "col" }, name)))),
    make("tbody", {}, ...exponentials.map((row, at) => make("tr", {}, cell("th", labels[at]), ...row.map((value) => cell("td", value))))),
    make("tfoot", {}, make("tr", {}, cell("th", "sum"), ...sums.map((value) => cell("td", value)))));
  let subtracted = false;
  const more = [
    slider("add to all scores", { min: 0, max: 800, step: 1, value: 0 }, (added) => change({ added })),
    toggle("subtract the largest score first", false, (on) => change({ subtracted: on })),
  ];

  /** An exponential, marked if the format has no number for it: too large is ∞, too small is 0. */
  function mark(node, value, exact) {
    const lost = value === 0 && exact !== -Infinity;
    show(node, value, Number.isFinite(value) ? (lost ? "0, too small" : digits(value)) : "∞, too large");
    node.parentElement.className = Number.isFinite(value) ? (lost ? "overflow-lost" : "") : "overflow-over";
  }

  /** The exponentials of the scores, which are divided by the temperature. */
  function shownFor(divided) {
    const shift = subtracted ? Math.max(...divided) : 0;
    const found = names.map((name, column) => {
      const { rounded } = numberFormats[name];
      const powers = divided.map((score) => rounded(Math.exp(rounded(score - shift))));
      powers.forEach((value, at) => mark(exponentials[at][column], value, divided[at]));
      const sum = powers.reduce((a, b) => rounded(a + b), 0);
      mark(sums[column], sum, 0);
      return sum;
    });
    const [infinite, none] = [Infinity, 0].map((sum) => names.filter((_, column) => found[column] === sum));
    first.textContent = `exp(score / temperature${subtracted ? " − the largest" : ""})`;
    said.textContent = [
      infinite.length ? `In ${listed(infinite)} the sum is ∞: the weights are lost, ∞ / ∞ is nan.` : "",
      none.length ? `In ${listed(none)} the sum is 0: the weights are lost, 0 / 0 is nan.` : "",
    ].join(" ").trim() || "All three formats hold the sum, and give these weights.";
    said.classList.toggle("overflow-bad", infinite.length + none.length > 0);
  }
  function listed(words) { return words.length > 1 ? `${words.slice(0, -1).join(", ")} and ${words.at(-1)}` : words[0]; }

  const bars = visuals["softmax"](root, data, more, shownFor);
  root.append(first.parentElement, said);
  function change({ subtracted: on = subtracted, ...part }) {
    subtracted = on;
    bars.change(part);
  }
  return { state: bars.state, change };
};
