"use strict";
// Layers: one stacked bar for each layer, its parts from below; the last one is what is outside of layers.

/** The bars in order: {name, lines}. */
function columnsOf(found) {
  const stacks = [...new Set(found.groups.map(({ stack }) => stack))];
  const columns = [];
  for (const stack of stacks) {
    const own = found.groups.filter((group) => group.stack === stack && group.layers[0] !== null)
      .flatMap(({ layers, lines }) => layers.map((layer) => ({ layer, lines })));
    own.sort((one, other) => one.layer - other.layer);
    columns.push(...own.map(({ layer, lines }) => ({ name: `${stack} ${layer}`, stack, layer, lines })));
  }
  const outside = found.groups.filter(({ layers }) => layers[0] === null).flatMap(({ lines }) => lines);
  return [...columns, { name: "outside of layers", stack: null, layer: null, lines: outside }];
}

/** What a bar, or all of them, holds, in words. */
function partsInWords(name, parts, metric) {
  const whole = parts.reduce((total, [, each]) => total + each, 0);
  const words = parts.map(([part, each]) => `${part} ${unit(each, METRICS[metric].unit)} (${percent(each, whole)})`);
  return `${name}: ${unit(whole, METRICS[metric].unit)}${words.length ? ": " : ""}${words.join(" · ")}`;
}

function drawLayers(found, choice) {
  const { metric } = choice;
  const columns = columnsOf(found);
  const { of, unit: name, title } = METRICS[metric];
  const sums = columns.map(({ lines }) => lines.reduce((total, line) => total + of(line), 0));
  const top = Math.max(...sums) || 1;
  const svg = $("layers-plot");
  const [width, height] = [Math.max(svg.clientWidth, 260), 260];
  const [left, right, above, below] = [62, 6, 10, 40];
  const gap = width / columns.length > 14 ? 3 : 1;
  const stacks = columns.filter(({ stack }, at) => at && stack !== columns[at - 1].stack).length;
  const step = (width - left - right - 10 * stacks) / columns.length;
  const x = [];
  columns.forEach(({ stack }, at) => x.push(at ? x[at - 1] + step + (stack === columns[at - 1].stack ? 0 : 10) : left));
  const y = (number) => height - below - (number / top) * (height - above - below);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const tick of ticks(top, 4)) {
    svg.append(drawn("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }));
    svg.append(drawn("text", { class: "tick", x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, unit(tick, name)));
  }
  columns.forEach(({ lines, layer, stack }, at) => {
    const group = drawn("g", { class: "column" });
    let from = 0;
    for (const part of PARTS) {
      const size = sizeOf(lines, part, metric);
      if (!size) continue;
      const [high, low] = [y(from + size), y(from)];
      group.append(drawn("rect", { class: `part ${part}`, x: x[at], y: high, width: Math.max(step - gap, 1), height: Math.max(low - high, 0.4) }));
      from += size;
    }
    svg.append(group);
    const middle = x[at] + (step - gap) / 2;
    const every = Math.ceil(28 / step);
    if (layer !== null && layer % every === 0) svg.append(drawn("text", { class: "tick", x: middle, y: height - below + 15, "text-anchor": "middle" }, layer));
    if (layer === null && columns.length > 1) svg.append(drawn("text", { class: "tick", x: width - right, y: height - below + 30, "text-anchor": "end" }, "outside of layers ↑"));
    if (stack !== null && (!at || columns[at - 1].stack !== stack)) svg.append(drawn("text", { class: "tick name", x: x[at], y: height - below + 30 }, `layer of ${stack}`));
  });
  const parts = byPart(found, metric);
  const whole = parts.reduce((total, [, each]) => total + each, 0);
  const usual = partsInWords("all", parts, metric);
  $("layers-read").textContent = usual;
  readable(svg, {
    count: columns.length,
    at: (place) => Math.max(0, x.findLastIndex((each) => each <= place)),
    show: (place) => {
      [...svg.querySelectorAll(".column")].forEach((each, at) => each.classList.toggle("faint", place !== null && at !== place));
      if (place === null) return void ($("layers-read").textContent = usual);
      const own = PARTS.map((part) => [part, sizeOf(columns[place].lines, part, metric)]);
      $("layers-read").textContent = partsInWords(columns[place].name, own.filter(([, each]) => each), metric);
    },
  });
  const attention = parts.reduce((total, [part, each]) => total + (ATTENTION.includes(part) ? each : 0), 0);
  const [first, ...others] = parts.filter(([part]) => !ATTENTION.includes(part));
  const verb = { operations: "of the operations", memory: "of the memory by layer", time: "of the least time" }[metric];
  $("layers-title").textContent = `${subject()}, attention takes ${percent(attention, whole)} ${verb}${first ? `; ${first[0]} ${percent(first[1], whole)}` : ""}${others[0] ? `, ${others[0][0]} ${percent(others[0][1], whole)}` : ""}`;
  $("layers-axis").textContent = `${title}, each bar one layer${metric === "memory" ? `; ${choice.phase === "train" ? "weights, gradients, Adam, and activations without checkpoints" : "weights and KV cache"}` : ""}`;
  svg.setAttribute("aria-label", `${$("layers-title").textContent}. Bars of ${columns.length} layers; arrow keys read one after the other; the table below has all numbers.`);
  $("layers-legend").replaceChildren(...PARTS.filter((part) => parts.some(([each]) => each === part)).map((part) =>
    element("li", null, {}, element("i", null, { className: `swatch ${part}` }), part)));
  tableOfLayers(found);
}

function tableOfLayers(found) {
  const rows = found.groups.flatMap(({ stack, layers, lines }) => lines.map((line) => [
    layers[0] === null ? "outside of layers" : `${stack} ${ranges(layers)}`,
    line.part, commas(line.parameters), commas(line.forward), commas(line.backward), commas(line.moved), commas(line.held),
    line.seconds === null ? "–" : unit(line.seconds, "s"),
  ]));
  const heads = ["layers", "part", "parameters", "forward, FLOP", "backward, FLOP", "moved, B", "memory, B", "least time"];
  $("layers-table").replaceChildren(table("Each part of one layer; equal layers share a row.", heads, rows));
}

/** 0–3, 5: numbers of layers, runs together. */
function ranges(layers) {
  const runs = [];
  for (const layer of layers) {
    const last = runs[runs.length - 1];
    if (last && last[1] === layer - 1) last[1] = layer;
    else runs.push([layer, layer]);
  }
  const shown = runs.slice(0, 8).map(([one, other]) => (one === other ? one : `${one}–${other}`)).join(", ");
  return runs.length > 8 ? `${shown}, … (${layers.length})` : shown;
}
