// The parts that visuals are made of: elements, numbers, controls, players of steps.
//
// A visual is a function in `visuals`: visuals["softmax"](root, data) fills the element `root` and returns an object with
//   state    what the reader has chosen: plain data
//   change   change({temperature: 2}) computes and draws at once, in one synchronous call; every control calls it
// Numbers are shown by `shown`, so that all their digits can be read. Colors are CSS variables; see visuals.css. A kind or a part may have a style, NAME.css.
// scripts.py joins the scripts of visuals in one function: what is declared here is seen by all of them, and by nothing
// else in the page.

const visuals = {};
const SVG = "http://www.w3.org/2000/svg";

/** An element of HTML with properties and children: make("p", { className: "note" }, "text"). */
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name in made && !name.includes("-")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

/** An element of SVG with attributes and children. */
function draw(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  place(made, attributes);
  made.append(...children);
  return made;
}

/** Sets the attributes of an element, if they differ. */
function place(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  return node;
}

/** A drawing of a width and a height, which scales with the page; label: what it shows, for those who cannot see it. */
const drawing = (width, height, label, ...children) =>
  draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label, class: "drawing" }, ...children);

const button = (text, press, properties = {}) => make("button", { type: "button", onclick: press, ...properties }, text);

/** The step that belongs to a key, which is then handled; undefined for other keys, and with Ctrl, ⌘ or Alt. */
function stepOf(event, steps) {
  const by = steps[event.key];
  if (by === undefined || event.ctrlKey || event.metaKey || event.altKey) return undefined;
  event.preventDefault();
  return by;
}
const ALONG = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 };

/** A number as people read it: so many significant digits, a real minus, no useless zeros. */
function digits(value, figures = 3) {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  if (value === 0) return "0";
  const size = Math.abs(value);
  const text = size >= 1e6 || size < 1e-4 ? value.toExponential(figures - 1).replace("e+", "e") : size >= 10 ** (figures - 1) ? value.toFixed(0) : value.toPrecision(figures);
  return (text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text).replaceAll("-", "−");
}

/** An element that shows a number, named `name` for tests and readers of the page's source; `show` changes it. */
function shown(name, value, figures = 3) {
  const made = make("data", { className: "number", "data-name": name, "data-figures": figures });
  return show(made, value);
}
function show(node, value, text) {
  const whole = String(value);
  if (node.getAttribute("value") === whole && text === undefined) return node;
  node.setAttribute("value", whole);
  node.textContent = text ?? digits(value, Number(node.dataset.figures ?? 3));
  return node;
}

/** What is given, or what a function gives now: controls take their first value, or a function that `refresh` asks again. */
const now = (given) => (typeof given === "function" ? given() : given);
function following(control, value, show) {
  show(now(value));
  return typeof value === "function" ? Object.assign(control, { refresh: () => show(value()) }) : control;
}
/** Moves all controls to what is chosen now; their input is not called. */
function refresh(root) {
  for (const control of root.querySelectorAll(".control")) control.refresh?.();
}

/** A slider with its label and its value: slider("temperature", { min, max, step, value }, (value) => change({ … })). */
function slider(label, { min, max, step, value, text = (v) => digits(v) }, input) {
  const output = make("output");
  const range = make("input", { type: "range", min, step });
  const say = () => {
    output.textContent = text(range.valueAsNumber);
    range.setAttribute("aria-valuetext", output.textContent);
  };
  range.addEventListener("input", () => { say(); input(range.valueAsNumber); });
  return following(make("label", { className: "control" }, make("span", {}, label), range, output), value, (at) => {
    range.max = now(max);
    range.value = at;
    say();
  });
}

/** A switch: toggle("causal mask", false, (on) => change({ … })). */
function toggle(label, on, input) {
  const box = make("input", { type: "checkbox", oninput: () => input(box.checked) });
  const control = make("label", { className: "control toggle" }, box, make("span", {}, label));
  return following(control, on, (checked) => { box.checked = checked; });
}

/** A choice among names: options("dtype", ["float32", "float16"], "float32", (name) => change({ … })). */
function options(label, names, chosen, input) {
  const list = make("select", { oninput: () => input(list.value) }, ...names.map((name) => make("option", { value: name }, name)));
  return following(make("label", { className: "control" }, make("span", {}, label), list), chosen, (name) => { list.value = name; });
}

/** A row of controls. */
const controls = (...children) => make("div", { className: "controls", role: "group", "aria-label": "Controls" }, ...children);

/** Buttons that go through steps, one by one or as an animation: `go(step)` draws one. Nothing moves until it is started. */
function player(count, go, { every = 700, label = "step" } = {}) {
  let step = 0;
  let timer = 0;
  const at = make("input", { type: "range", min: 0, max: count - 1, step: 1, value: "0", "aria-label": label, oninput: () => { stop(); to(at.valueAsNumber); } });
  const words = make("output", {}, `${label} 1 of ${count}`);
  const back = button("◀", () => { stop(); to(step - 1); }, { "aria-label": `previous ${label}` });
  const on = button("▶", () => { stop(); to(step + 1); }, { "aria-label": `next ${label}` });
  const to = (next) => {
    step = Math.min(count - 1, Math.max(0, next));
    at.value = step;
    at.setAttribute("aria-valuetext", `${step + 1} of ${count}`);
    words.textContent = `${label} ${step + 1} of ${count}`;
    go(step);
  };
  const stop = () => {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  };
  const play = button("Play", () => {
    if (timer) return stop();
    if (step === count - 1) to(0);
    if (matchMedia("(prefers-reduced-motion: reduce)").matches) return to(step + 1); // one step at a press: nothing moves by itself
    play.textContent = "Pause";
    timer = setInterval(() => (step < count - 1 ? to(step + 1) : stop()), every);
    return undefined;
  });
  to(0);
  return make("div", { className: "controls player", role: "group", "aria-label": `Steps: ${label}` }, back, play, on, at, words);
}
