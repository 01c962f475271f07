"use strict";
// Curve: attention against everything else, over the number of tokens, both axes in powers of ten.

const LONGEST = 20; // 2^20 tokens

/** {attention, rest} of a metric for so many tokens. */
function twoOf(choice, tokens) {
  const found = priced({ ...choice, tokens });
  const total = (attention) => found.groups.reduce((all, { layers, lines }) => all + layers.length
    * lines.filter((line) => (line.part === "attention") === attention).reduce((sum, line) => sum + METRICS[choice.metric].of(line), 0), 0);
  return { tokens, attention: total(true), rest: total(false) };
}

/** The fewest tokens from which attention takes more than the rest, or null if it does not up to 2^20. */
function crossover(choice, points) {
  const more = ({ attention, rest }) => attention > rest;
  const at = points.findIndex(more);
  if (at < 0 || points.slice(at).some((each) => !more(each))) return null;
  if (!at) return points[0].tokens;
  let [low, high] = [points[at - 1].tokens, points[at].tokens];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if (more(twoOf(choice, middle))) high = middle;
    else low = middle;
  }
  return high;
}

function drawCurve(choice) {
  $("curve").hidden = !terms.reads;
  if (!terms.reads) return;
  const { unit: name, title } = METRICS[choice.metric];
  const [first, last] = [Math.max(1, termsOf(choice).least), Math.min(termsOf(choice).most ?? 2 ** LONGEST, 2 ** LONGEST)];
  const powers = Array.from({ length: 2 * LONGEST + 1 }, (_, at) => Math.round(2 ** (at / 2)));
  const tokens = [...new Set([first, ...powers.filter((each) => each > first && each < last), last])];
  const points = tokens.map((each) => twoOf(choice, each));
  const cross = crossover(choice, points);
  const numbers = points.flatMap(({ attention, rest }) => [attention, rest]).filter((each) => each > 0);
  const [bottom, top] = [Math.floor(Math.log10(Math.min(...numbers))), Math.ceil(Math.log10(Math.max(...numbers)))];
  const svg = $("curve-plot");
  const [width, height] = [Math.max(svg.clientWidth, 260), 280];
  const [left, right, above, below] = [62, 12, 16, 36];
  const x = (each) => left + (Math.log(each / first) / Math.log(last / first || 2)) * (width - left - right);
  const y = (each) => height - below - ((Math.log10(each) - bottom) / (top - bottom || 1)) * (height - above - below);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  const every = Math.ceil((top - bottom) / 6);
  for (let power = bottom; power <= top; power += every) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(10 ** power), y2: y(10 ** power) }));
    svg.append(drawn("text", { class: "tick", x: left - 6, y: y(10 ** power) + 4, "text-anchor": "end" }, unit(10 ** power, name)));
  }
  for (let each = 1; each <= last; each *= width < 500 ? 100 : 10) {
    if (each < first) continue;
    svg.append(drawn("line", { class: "grid", x1: x(each), x2: x(each), y1: above, y2: height - below }));
    svg.append(drawn("text", { class: "tick", x: x(each), y: height - below + 16, "text-anchor": each * 3 > last ? "end" : "middle" }, unit(each, "")));
  }
  svg.append(drawn("text", { class: "tick", x: width - right, y: height - 4, "text-anchor": "end" }, "tokens of each sequence"));
  if (terms.limit && terms.limit < last) {
    svg.append(drawn("rect", { class: "beyond", x: x(terms.limit), y: above, width: width - right - x(terms.limit), height: height - below - above }));
    const near = x(terms.limit) > width - 150;
    svg.append(drawn("text", { class: "tick haloed", x: x(terms.limit) + (near ? -5 : 5), y: height - below - 6, "text-anchor": near ? "end" : "start" }, `beyond ${commas(terms.limit)} positions`));
  }
  for (const [name, label] of [["rest", "all else"], ["attention", "attention"]]) {
    const shown = points.filter((each) => each[name] > 0);
    if (!shown.length) continue;
    svg.append(drawn("polyline", { class: `curve ${name}`, points: shown.map((each) => `${x(each.tokens)},${y(each[name])}`).join(" ") }));
    const from = shown[Math.floor(shown.length * 0.16)];
    svg.append(drawn("text", { class: `label ${name}`, x: x(from.tokens), y: y(from[name]) - 8 }, label));
  }
  const now = twoOf(choice, choice.tokens);
  const clamped = Math.max(first, Math.min(last, choice.tokens));
  svg.append(drawn("line", { class: "now", x1: x(clamped), x2: x(clamped), y1: above, y2: height - below }));
  for (const name of ["rest", "attention"]) if (now[name] > 0) svg.append(drawn("circle", { class: `dot ${name}`, cx: x(clamped), cy: y(now[name]), r: 4 }));
  if (cross !== null && cross > first) {
    const both = twoOf(choice, cross);
    const near = x(cross) > width / 2;
    svg.append(drawn("circle", { class: "crossing", cx: x(cross), cy: y(both.rest), r: 7 }));
    svg.append(drawn("text", { class: "label", x: x(cross) + (near ? -12 : 12), y: y(both.rest) + (near ? -8 : 18), "text-anchor": near ? "end" : "start" }, `equal at ${commas(cross)}`));
  }
  const compared = ({ tokens, attention, rest }) =>
    `${counted(tokens, "token", "tokens")}: attention ${unit(attention, name)}, all else ${unit(rest, name)}: attention takes ${percent(attention, attention + rest)}`;
  $("curve-read").textContent = compared(now);
  const mark = drawn("line", { class: "mark", y1: above, y2: height - below, visibility: "hidden" });
  svg.append(mark);
  readable(svg, {
    count: points.length,
    at: (place) => {
      const distances = points.map((each) => Math.abs(x(each.tokens) - place));
      return distances.indexOf(Math.min(...distances));
    },
    show: (place) => {
      $("curve-read").textContent = compared(place === null ? now : points[place]);
      mark.setAttribute("visibility", place === null ? "hidden" : "visible");
      if (place !== null) for (const name of ["x1", "x2"]) mark.setAttribute(name, x(points[place].tokens));
    },
  });
  const what = { operations: "more operations than everything else", memory: "more memory than everything else", time: "more time than everything else" }[choice.metric];
  $("curve-title").textContent = cross === null
    ? `Up to ${commas(last)} tokens, attention never takes ${what}`
    : `From ${commas(cross)} ${cross === 1 ? "token" : "tokens"} on, attention takes ${what}`;
  $("curve-axis").textContent = `${title} over tokens; both axes are logarithmic`;
  svg.setAttribute("aria-label", `${$("curve-title").textContent}. Two lines over the number of tokens; arrow keys read them; the table below has all numbers.`);
  const rows = points.filter(({ tokens }) => Number.isInteger(Math.log2(tokens))).map((each) =>
    [commas(each.tokens), unit(each.attention, name), unit(each.rest, name), percent(each.attention, each.attention + each.rest)]);
  $("curve-table").replaceChildren(table(`${title} at powers of two`, ["tokens", "attention", "all else", "attention's share"], rows));
}
