// q·k of one key, element by element.

/** The same numbers as a table, with a row for each element. */
function asTable(rows) {
  const cells = (kind, values) => values.map((value) => element(kind, null, {}, ...subscripts(value)));
  const head = element("tr", null, {}, ...cells("th", ["d", ...rows.map(([title]) => title)]));
  const body = rows[0][1].map((_, d) => element("tr", null, {}, ...cells("td", [`${d}`, ...rows.map(([, values]) => decimal(values[d]))])));
  const table = element("table", null, {}, element("thead", null, {}, head), element("tbody", null, {}, ...body));
  const box = element("details", null, { className: "walk-table", open: walk.tabled }, element("summary", "as a table"), table);
  box.addEventListener("toggle", () => { walk.tabled = box.open; });
  return box;
}

/** The products of the elements of q and k for the chosen key, their running sum, and the score. */
function dotProduct(w) {
  if (!w.q || !w.k) return [];
  const at = w.keys.indexOf(walk.keyOf(w));
  const products = w.q.map((value, d) => value * w.k[at][d]);
  const sums = running(products);
  const rows = [["q_d", w.q], ["k_d", w.k[at]], ["q_d k_d", products], ["sum so far", sums]];
  const called = (row, d) => ["q", "k", "q × k", "sum of the first products"][row] + (row < 3 ? `, element ${d}` : `, up to element ${d}`);
  const whole = sums.at(-1);
  const score = whole * w.scale;
  const said = element("p", null, { className: "walk-result", id: "walk-dot-result" }, "Sum of all ", `${w.D} products: q·k = ${decimal(whole)}. Times the scale: ${decimal(whole)} × ${decimal(w.scale)} = ${decimal(score)}.`);
  const parts = [element("h3", "Element by element"), keyChoice("walk-dot-key", w), lines("q·k by element", rows, called), asTable(rows), said];
  if (w.exact && Math.abs(score - w.scaled[at]) > 5e-5 * Math.max(1, Math.abs(w.scaled[at]))) {
    parts.push(element("p", `From q and k as this page stores them; the score that follows from the weight is ${decimal(w.scaled[at])}.`, { className: "note" }));
  }
  return parts;
}
