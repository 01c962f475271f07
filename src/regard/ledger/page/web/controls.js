"use strict";
// Controls: what is chosen, kept in the address; every change draws all plots anew.

let drawing = 0; // the number of the last drawing, for tests to wait for
const STEPS = 8; // of the tokens' slider, for each doubling

const phases = Object.keys(terms.phases);
const choice = {
  tokens: Math.min(terms.limit ?? 2048, 2048), batch: 1, phase: phases[0], dtype: "bfloat16", machine: "h100-sxm", memory: 80, metric: "operations",
};

/** Whether a value can be chosen. */
const allowed = {
  tokens: (each) => Number.isInteger(each) && each >= termsOf(choice).least && each <= (termsOf(choice).most ?? 2 ** 30),
  batch: (each) => Number.isInteger(each) && each >= 1 && each <= 2 ** 30,
  phase: (each) => phases.includes(each),
  dtype: (each) => each in DTYPES && !(each === "int8" && choice.phase === "train"),
  machine: (each) => each === "" || each in data.machines,
  memory: (each) => Number.isFinite(each) && each > 0 && each <= 1e9,
  metric: (each) => each in METRICS,
};

/** Takes over what can be chosen of some changes. */
function take(changes) {
  for (const name of ["phase", "dtype", "tokens", "batch", "machine", "memory", "metric"]) {
    if (!(name in changes) || changes[name] === null) continue;
    const next = typeof choice[name] === "number" ? Number(changes[name]) : changes[name];
    if (allowed[name](next)) choice[name] = next;
  }
  if (!allowed.dtype(choice.dtype)) choice.dtype = "bfloat16";
  choice.tokens = Math.max(termsOf(choice).least, Math.min(choice.tokens, termsOf(choice).most ?? 2 ** 30));
}

/** Chooses and draws: choose({tokens: 4096}). */
function choose(changes) {
  take(changes);
  const shown = Object.fromEntries(Object.entries(choice).map(([name, each]) => [name, String(each)]));
  history.replaceState(null, "", `#${new URLSearchParams(shown)}`);
  draw();
}

/** "At 4,096 tokens", for titles. */
const subject = () => (terms.reads ? `At ${counted(choice.tokens, "token", "tokens")}` : "Here");

function draw() {
  const found = priced(choice);
  if (choice.metric === "time" && found.seconds === null) choice.metric = "operations";
  show(found);
  drawLayers(found, choice);
  drawCurve(choice);
  drawMemory(found, choice);
  drawing += 1;
  document.documentElement.dataset.drawn = String(drawing);
}

/** The controls as chosen, and the numbers beside them. */
function show(found) {
  $("tokens").value = Math.round(STEPS * Math.log2(choice.tokens));
  $("tokens-number").value = choice.tokens;
  $("batch").value = Math.log2(choice.batch);
  $("batch-number").value = choice.batch;
  $("tokens").setAttribute("aria-valuetext", counted(choice.tokens, "token", "tokens"));
  $("batch").setAttribute("aria-valuetext", counted(choice.batch, "sequence", "sequences"));
  for (const name of ["phase", "dtype", "metric"]) document.querySelector(`input[name="${name}"][value="${choice[name]}"]`).checked = true;
  $("dtype-int8").disabled = choice.phase === "train";
  $("metric-time").disabled = found.seconds === null;
  $("machine").value = choice.machine;
  $("memory-number").value = choice.memory;
  const train = choice.phase === "train";
  const all = [
    ["operations", unit(found.flops, "FLOP"), `linear ${commas(found.linear)}, attention ${commas(found.attention)}, backward ${commas(found.backward)}`],
    ["attention", percent(found.attention, found.linear + found.attention), "of the operations of the forward pass"],
    ["held at once", unit(found.held, "B"), `${commas(found.held)} bytes`],
    ["moved by products", unit(found.moved, "B"), `${commas(found.moved)} bytes${train ? ", forward" : ""}, ${commas(Number((Number(found.linear + found.attention) / Number(found.moved)).toPrecision(3)))} operations per byte`],
    found.seconds === null
      ? ["least time", "–", choice.machine === "" ? "no machine is chosen" : termsOf(choice).timed ? `no rate for ${DTYPES[choice.dtype].rate} is known` : "some products have no formula"]
      : ["least time", unit(found.seconds, "s"), `${percent(found.compute, found.seconds)} limited by operations, the rest by memory`],
    ["exponentials", unit(found.exponentials, ""), `${commas(found.exponentials)} of the softmax`],
  ];
  $("sums").replaceChildren(...all.map(([name, number, more]) =>
    element("div", null, {}, element("dt", name), element("dd", number, { className: "large" }), element("dd", more, { className: "soft" }))));
  const notes = [];
  if (terms.limit && choice.tokens > terms.limit) notes.push(`${commas(choice.tokens)} tokens are more than the ${commas(terms.limit)} positions of the model.`);
  const without = termsOf(choice).without;
  if (without.length) notes.push(`Without a formula, and not in the sums: ${without.slice(0, 6).join("; ")}${without.length > 6 ? `; and ${without.length - 6} more` : ""}.`);
  if (choice.dtype === "int8") notes.push("8 bit weights: matrices take one byte for each number, without scales; everything else is bfloat16, products too.");
  $("notes").textContent = notes.join(" ");
  $("notes").hidden = !notes.length;
}

function radios(name, options) {
  $(name).append(...Object.entries(options).map(([each, title]) => {
    const input = element("input", null, { type: "radio", name, value: each, id: `${name}-${each}` });
    input.onchange = () => choose({ [name]: each });
    return element("label", null, {}, input, element("span", title));
  }));
}

function start() {
  $("name").textContent = `What ${terms.name} costs`;
  const refused = Object.entries(terms.refused).map(([phase, why]) => `${phase} (${why})`);
  $("sentence").textContent = `You see where operations, memory and time of ${terms.name} go (${terms.model}, ${inWords(terms.parameters)} parameters): `
    + "by layer, over the number of tokens, and against a given memory. Move a slider, and this page computes every number anew, by formulas that were found "
    + `and confirmed by running the model without data.${refused.length ? ` Not possible: ${refused.join(", ")}.` : ""}`;
  radios("phase", Object.fromEntries(phases.map((each) => [each, each])));
  radios("dtype", Object.fromEntries(Object.entries(DTYPES).map(([each, { title }]) => [each, title])));
  radios("metric", Object.fromEntries(Object.entries(METRICS).map(([each, { title }]) => [each, title])));
  $("machine").append(...Object.entries({ "": { name: "no machine" }, ...data.machines }).map(([each, { name }]) => element("option", name, { value: each })));
  $("tokens-box").hidden = !terms.reads;
  const power = (name, steps) => ($(name).oninput = () => choose({ [name]: Math.round(2 ** ($(name).value / steps)) }));
  power("tokens", STEPS);
  power("batch", 1);
  for (const name of ["tokens", "batch", "memory"]) $(`${name}-number`).onchange = () => choose({ [name]: $(`${name}-number`).value });
  $("machine").onchange = () => {
    const machine = data.machines[$("machine").value];
    choose({ machine: $("machine").value, ...(machine ? { memory: machine.memory / 1e9 } : {}) });
  };
  const given = data.start;
  take({ ...given, memory: given.memory ? given.memory / 1e9 : given.machine ? data.machines[given.machine].memory / 1e9 : null });
  take(Object.fromEntries(new URLSearchParams(location.hash.slice(1))));
  draw();
  let width = innerWidth;
  addEventListener("resize", () => innerWidth !== width && ((width = innerWidth), draw()));
  addEventListener("hashchange", () => (take(Object.fromEntries(new URLSearchParams(location.hash.slice(1)))), draw()));
  document.documentElement.dataset.ready = "";
}

start();
