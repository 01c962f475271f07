// The header and footer: settings, a sentence about the chosen row and head, the exactness of the numbers, and provenance; and the color
// legend of the map.

/** Entries of a legend, [what it means, its class]. */
const swatches = (kinds) => kinds.map(([name, kind]) => element("li", undefined, {}, element("i", undefined, { className: `cell ${kind}` }), name));
const SWATCHES = [[MASKED, "masked", "hatch"], [ZERO, "exactly 0", "zero"], [NAN, "not a number", "nan"], [OUT, "out of range", "out"], [LEAK, "forbidden weight", "leak"]];

const HABITS = ["special", "first", "previous", "itself", "distant"]; // figures that say what a head does

/** Nodes and texts in which no line ends between a number and its %. */
const unbroken = (parts) => parts.flatMap((part) => (typeof part === "string" ? part.split(/([\d.]+ %)/).map((text, at) => (at % 2 ? element("span", text, { className: "unbroken" }) : text)) : [part]));

const legend = {
  name: "legend",

  /** The model and the text of the run in the first line of the page. */
  about() {
    const { model, text, calls, axes, facts } = runs[state.run];
    const several = (values, one) => {
      const [least, most] = [Math.min(...values), Math.max(...values)];
      return `${least < most ? `${least.toLocaleString("en")} to ` : ""}${counted(most, one)}`;
    };
    const lengths = Object.values(axes).map((of) => of.tokens.length);
    const about = [`${counted(calls.length, "call")} × ${several(calls.map((call) => call.heads), "head")}`, several(lengths, "token")];
    if (facts.changed) about.push(`changed: ${facts.changed}`);
    if (facts.predicted) about.unshift(`predicts ${clip(facts.predicted[0][0].trim() || "␣", 40)} (${percent(facts.predicted[0][1])})`);
    $("about").replaceChildren(element("bdi", model, { className: "model" }), ` · ${about.join(" · ")}`, ...(text ? [" · “", element("bdi", clip(text, 120)), "”"] : []));
    document.title = `regard · ${clip(model, 40)}${text ? ` · ${clip(text, 40)}` : ""}`;
    this.facts();
  },

  build() {
    const add = (id, title, titles) => $("settings").append(element("label", `${title} `, {}, chooser(titles, { id, onchange: (event) => choose({ [id]: event.target.value }) })));
    add("scale", "colors", titlesIn(SCALES));
    add("pool", "cells of several weights", { share: "sum", largest: "largest" });
  },

  async draw(changed) {
    const any = (...names) => names.some((name) => changed.has(name));
    if (any("run")) this.about();
    if (any("scale", "theme")) drawRamp($("ramp-box"), state.scale, evenly(SCALES[state.scale].ticks));
    if (any("run", "call", "scale", "pool", "theme")) {
      for (const id of ["scale", "pool"]) $(id).value = state[id];
      $("pool").title = `a cell that pools several weights shows: ${POOLS[state.pool]}`;
    }
    if (any("run", "call", "head", "query", "key", "pins", "direction", "step", "theme")) await this.sentence();
  },

  /** The swatches of the codes that are on the map. */
  swatches(present) {
    $("swatches").replaceChildren(...swatches(SWATCHES.filter(([code]) => present.has(code)).map(([, ...named]) => named)));
  },

  async sentence() {
    const place = { run: state.run, call: state.call, head: state.head, query: state.query, key: state.key, direction: state.direction };
    const line = await reading();
    if (overtaken(place)) return;
    const pinned = line.to ? queryAxis() : keyAxis();
    const start = [`${capital(headTitle())}${this.effect()}: `, ...line.places.slice(0, 3).flatMap((i, at) => [at ? ", " : "", ...named(pinned, i)])];
    if (line.places.length > 3) start.push(` and ${line.places.length - 3} more`);
    $("sentence").replaceChildren(...start, ...unbroken([...this.weights(line), ...this.wrong(line), ...this.habit()]));
    const from = data.served ? "the server holds the run in full and sends weights" : line.error ? "every weight is computed from q, k and lse" : "every weight is stored";
    $("exactness").textContent = `${capital(line.exact)}; ${from} with a relative error of at most ${line.error ?? data.error}, vectors with at most 0.05 %.`;
  },

  /** The weights of rows, or those that keys receive, as a sentence. */
  weights(line) {
    const { to, places } = line, several = places.length > 1, [most] = ranked(line, 1);
    const verb = to ? (several ? " put on average " : " puts ") : several ? " receive " : " receives ";
    if (most === undefined && line.wrong + line.leaks) return [`${several ? " have" : " has"} only invalid weights.`];
    if (most === undefined) return [!to ? `${verb}no weight.` : several ? " attend to no key." : " attends to no key: every key is masked, or its weight is too small to show."];
    const itself = line.of === (to ? queryAxis() : keyAxis()) && !several && most === places[0];
    const parts = [verb, `${percent(line.p[most])} of ${to ? `${several ? "their" : "its"} weight on` : "the attention of"} `, ...this.beside(line, most, itself), "."];
    if (to && line.attended === 1 && callNow().K > 1 && !several) parts.push(" The mask allows it no other key.");
    if (to && callNow().formula.sinks) parts.push(` The sinks (additional logits in the softmax) take ${percent(Math.max(0, 1 - line.total), 2)}.`);
    return parts;
  },

  /** A token, and the mean weight of the other rows next to its own. */
  beside(line, j, itself) {
    const others = line.others(j);
    const said = Number.isNaN(others) ? "" : `other rows: ${othersPercent(others)}`;
    return itself ? ["itself", said && ` (${said})`] : named(line.of, j, said && `; ${said}`);
  },

  /** What the head does in all rows, and why it is the one that is shown first. */
  habit() {
    if (isMean(state.head)) return [];
    const { start } = runs[state.run];
    const names = HABITS.filter((name) => !(keyAxis().grid && ALONG_TEXT.has(name)));
    const values = names.map((name) => [metrics.value(name, state.call, state.head) ?? 0, METRICS[name]?.title]);
    const [most, title] = values.reduce((best, each) => (each[0] > best[0] ? each : best));
    const first = start.why && start.call === state.call && start.head === state.head && !this.effect() ? ` Shown first: ${start.why}.` : "";
    return [most > 0 && callNow().Q > 1 ? ` On average, this head puts ${percent(most, 2)} of its ${title}.` : "", first];
  },

  /** A warning about invalid weights. */
  wrong({ wrong, leaks }) {
    const kinds = [[wrong, "not a number between 0 and 1", "not numbers between 0 and 1"], [leaks, "where the mask forbids it", "where the mask forbids them"]];
    return kinds.filter(([count]) => count).map(([count, one, many]) => element("strong", ` ${count.toLocaleString("en")} ${count === 1 ? `weight is ${one}` : `weights are ${many}`}.`, { className: "alarm" }));
  },

  /** How much the output depends on the head, in a run with effects. */
  effect() {
    const change = effectOf(callNow().name, state.head);
    if (Number.isNaN(change)) return "";
    const most = Math.abs(change) === metrics.top("effect") ? ", which matters most here" : "";
    return `${most} (without it, ${runs[state.run].facts.effects.measure} changes by ${change < 0 ? "−" : "+"}${Math.abs(change).toPrecision(3)})`;
  },

  /** The provenance of the run. */
  facts() {
    const shown = Object.entries(runs[state.run].facts).filter(([name]) => !["effects", "difference", "expected"].includes(name)); // shown elsewhere
    const lines = shown.map(([name, value]) => [name, plain(value)]);
    const engines = [...new Set(runs[state.run].calls.map((call) => call.engine).filter(Boolean))];
    if (engines.length) lines.push(["attention computed by", engines.map((name) => (name === "regard reference" ? "regard, in NumPy" : name)).join(", ")]);
    const list = element("dl", undefined, {}, ...lines.flatMap(([name, value]) => [element("dt", name.replaceAll("_", " ")), element("dd", undefined, {}, element("bdi", value))]));
    $("facts").replaceChildren(element("summary", "About this run"), list);
    $("facts").hidden = !lines.length;
  },
};
screens.push(legend);

/** JSON as one line of text. */
function plain(value) {
  if (Array.isArray(value)) return value.map(plain).join(", ") || "nothing";
  if (value && typeof value === "object") return Object.entries(value).map(([name, part]) => `${name.replaceAll("_", " ")} ${plain(part)}`).join(", ") || "nothing";
  return value === null ? "—" : String(value);
}
