"use strict";
// Memory: what is held at once, as one bar against a given memory, and what would fit.

const KINDS = { weights: "weights", gradients: "gradients", optimizer: "Adam", activations: "activations", cache: "KV cache", states: "recurrent states", working: "largest product" };

function drawMemory(found, choice) {
  const given = choice.memory * 1e9;
  const total = Number(found.held);
  const kinds = Object.entries(found.memory).filter(([, bytes]) => bytes > 0n);
  const svg = $("memory-plot");
  const [width, height] = [Math.max(svg.clientWidth, 260), 96];
  const [left, right] = [8, 8];
  const top = Math.max(total, given) * 1.02;
  const x = (bytes) => left + (bytes / top) * (width - left - right);
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const tick of ticks(top, width < 500 ? 3 : 6)) {
    svg.append(drawn("line", { class: "grid", x1: x(tick), x2: x(tick), y1: 26, y2: 74 }));
    svg.append(drawn("text", { class: "tick", x: x(tick), y: 90, "text-anchor": tick ? "middle" : "start" }, unit(tick, "B")));
  }
  let from = 0;
  for (const [kind, bytes] of kinds) {
    svg.append(drawn("rect", { class: `part column ${kind}`, x: x(from), y: 32, width: Math.max(x(from + Number(bytes)) - x(from) - 1, 0.6), height: 36 }));
    from += Number(bytes);
  }
  svg.append(drawn("line", { class: "limit", x1: x(given), x2: x(given), y1: 20, y2: 74 }));
  const end = x(given) > width - 70;
  svg.append(drawn("text", { class: "label", x: end ? x(given) + 4 : Math.max(x(given), 40), y: 14, "text-anchor": end ? "end" : "middle" }, `${unit(given, "B")} given`));
  const words = ([kind, bytes]) => `${KINDS[kind]}: ${unit(bytes, "B")} (${percent(bytes, found.held)})`;
  const usual = `all: ${unit(found.held, "B")}`;
  $("memory-read").textContent = usual;
  const ends = kinds.map(([, bytes]) => Number(bytes)).reduce((all, each) => [...all, (all[all.length - 1] ?? 0) + each], []);
  readable(svg, {
    count: kinds.length,
    at: (place) => {
      const under = ends.findIndex((each) => x(each) >= place);
      return under < 0 ? null : under;
    },
    show: (place) => {
      [...svg.querySelectorAll(".column")].forEach((each, at) => each.classList.toggle("faint", place !== null && at !== place));
      $("memory-read").textContent = place === null ? usual : words(kinds[place]);
    },
  });
  const over = total > given;
  const doing = { prefill: "Prefill", decode: "Decoding", train: "Training" }[choice.phase];
  $("memory-title").textContent = `${doing} holds ${unit(total, "B")}: ${over ? `${unit(total - given, "B")} more than` : `${percent(total, given)} of`} the ${unit(given, "B")} given`;
  svg.setAttribute("aria-label", `${$("memory-title").textContent}. ${kinds.map(words).join(", ")}.`);
  const rows = [...kinds.map(([kind, bytes]) => [KINDS[kind], commas(bytes), percent(bytes, found.held)]), ["all", commas(found.held), "100 %"]];
  $("memory-table").replaceChildren(table("Bytes held at once", ["", "bytes", "share"], rows));
  $("memory-legend").replaceChildren(...kinds.map(([kind, bytes]) =>
    element("li", null, {}, element("i", null, { className: `swatch ${kind}` }), `${KINDS[kind]} ${unit(bytes, "B")}`)));
  const checkpoints = choice.phase === "train" && termsOf(choice).checkpoints;
  $("memory-note").textContent = checkpoints
    ? `Activations with checkpoints: the inputs of all layers, and what the largest layer saves. Without checkpoints: ${unit(found.saved, "B")}.`
    : choice.phase === "train" ? "Activations: all that is saved for the backward pass; this model has no checkpoints." : "";
  drawFit(choice);
}

function drawFit(choice) {
  const fit = fitting(choice);
  const given = unit(choice.memory * 1e9, "B");
  let text;
  if (Number(fit.least) > choice.memory * 1e9) text = `Nothing fits ${given}: ${terms.reads ? "one token" : "one input"} needs ${unit(fit.least, "B")}.`;
  else {
    const of = terms.reads ? ` of ${counted(choice.tokens, "token", "tokens")}` : "";
    const batch = fit.batch ? counted(fit.batch, "sequence", "sequences") : "no sequence";
    const full = terms.limit && Number(fit.tokens) === terms.limit ? " (all its positions)" : "";
    const longest = fit.tokens ? `${counted(fit.tokens, "token", "tokens")}${full}` : "no token";
    text = `${given} hold ${terms.reads ? `at most ${longest} in ${counted(choice.batch, "sequence", "sequences")}, or ` : ""}at most ${batch}${of}.`;
  }
  $("fit").textContent = text;
}
