// Slides: one at a time; each press shows the next step of a slide, or the next slide.

const slides = [...document.querySelectorAll(".slide")];
const known = JSON.parse(document.getElementById("data").textContent).visuals;
const drawn = new Map(); // the visual of each name, for tests and for readers at the console
const at = { slide: 0, step: 0 };
const stepsOf = (slide) => [...slide.querySelectorAll(".step")];
const heading = (slide) => slide.querySelector("h2").textContent;
const button = (name) => document.getElementById(name);

/** Draws the visuals of a slide that is on the screen. */
function drawIn(slide) {
  for (const figure of slide.querySelectorAll("[data-visual]")) {
    const { kind, data } = known[figure.dataset.visual] ?? {};
    if (!kind || drawn.has(figure.dataset.visual)) continue;
    drawn.set(figure.dataset.visual, visuals[kind](figure.querySelector("div"), data));
  }
}

/** Shows a slide with so many of its steps; announced: the words for a screen reader. */
function go(slide, step, announced = true) {
  at.slide = Math.min(slides.length - 1, Math.max(0, slide));
  const now = slides[at.slide];
  const steps = stepsOf(now);
  at.step = Math.min(steps.length, Math.max(0, step));
  slides.forEach((each) => each.classList.toggle("now", each === now));
  steps.forEach((each, number) => each.classList.toggle("ahead", number >= at.step));
  drawIn(now);
  button("counter").textContent = `${at.slide + 1} / ${slides.length}`;
  button("next").textContent = at.step < steps.length ? "Show ▶" : "Next ▶";
  button("next").disabled = at.slide === slides.length - 1 && at.step === steps.length;
  button("back").disabled = at.slide === 0 && at.step === 0;
  document.documentElement.style.setProperty("--done", `${(100 * (at.slide + 1)) / slides.length}%`);
  history.replaceState(null, "", `#${at.slide + 1}`);
  if (at.step) steps[at.step - 1].scrollIntoView({ block: "nearest" });
  else scrollTo(0, 0);
  if (announced) button("status").textContent = at.step ? steps[at.step - 1].textContent.trim() : `Slide ${at.slide + 1} of ${slides.length}: ${heading(now)}`;
}
const next = () => (at.step < stepsOf(slides[at.slide]).length ? go(at.slide, at.step + 1) : at.slide < slides.length - 1 && go(at.slide + 1, 0));
const back = () => (at.step ? go(at.slide, at.step - 1) : at.slide && go(at.slide - 1, Infinity));

function notes() {
  const on = document.body.classList.toggle("with-notes");
  button("notes").setAttribute("aria-pressed", on);
}

const nav = document.querySelector(".overview");
function overview(open = nav.hidden) {
  nav.hidden = !open;
  document.body.classList.toggle("in-overview", open);
  button("overview").setAttribute("aria-expanded", open);
  if (!open) return;
  const cards = slides.map((slide, number) => {
    const begins = slide.querySelector(".screen > p:not(.kind), figcaption, blockquote")?.textContent ?? "";
    const parts = [["span", `${number + 1}`], ["small", slide.querySelector(".kind").textContent], ["strong", heading(slide)], ["em", begins]];
    const opens = { onclick: () => { overview(false); go(number, 0); }, ...(number === at.slide ? { "aria-current": "true" } : {}) };
    return make("button", { type: "button", ...opens }, ...parts.map(([tag, text]) => make(tag, {}, text)));
  });
  nav.replaceChildren(...cards);
  cards[at.slide].focus();
}

button("next").addEventListener("click", next);
button("back").addEventListener("click", back);
button("notes").addEventListener("click", notes);
button("overview").addEventListener("click", () => overview());
button("print").addEventListener("click", () => print());

const KEYS = { ArrowRight: next, PageDown: next, " ": next, Enter: next, ArrowLeft: back, PageUp: back, Backspace: back, Home: () => go(0, 0), End: () => go(slides.length - 1, Infinity), n: notes, o: () => overview(), p: () => print() };
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (event.key === "Escape" && !nav.hidden) return overview(false);
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  const { target } = event;
  const typed = target.closest("input, select, textarea, .visual [tabindex]"); // these have their own use for keys
  const pressed = [" ", "Enter"].includes(key) && target.closest("button, a, summary");
  const scrolled = key.startsWith("Arrow") && target.closest("pre, .wide")?.scrollWidth > target.clientWidth;
  if (!KEYS[key] || typed || pressed || scrolled || (!nav.hidden && key !== "o")) return undefined;
  event.preventDefault();
  return KEYS[key]();
});

// A click or tap shows what comes next, a swipe goes both ways; controls, visuals and selected text keep their own use.
let touched = null;
const own = (target) => target.closest("button, a, input, select, label, textarea, summary, .visual, .notes, .bar, .overview");
document.querySelector(".deck").addEventListener("click", ({ target }) => { if (!own(target) && getSelection().isCollapsed) next(); });
addEventListener("touchstart", ({ changedTouches: [touch], target }) => { touched = own(target) || target.closest("pre, .wide") ? null : { x: touch.clientX, y: touch.clientY }; }, { passive: true });
addEventListener("touchend", ({ changedTouches: [touch] }) => {
  const moved = touched ? touch.clientX - touched.x : 0;
  if (Math.abs(moved) > 60 && Math.abs(moved) > 2 * Math.abs(touch.clientY - touched.y)) (moved < 0 ? next : back)();
  touched = null;
}, { passive: true });
addEventListener("hashchange", () => go(Number(location.hash.slice(1)) - 1 || 0, 0));

// On paper every slide has a page of its own with its notes; what is too long for it becomes smaller.
const PAGE = { width: 700, height: 990, most: 1010 }; // of A4 without its margins, in CSS pixels; printers differ a little
addEventListener("beforeprint", () => {
  document.documentElement.dataset.print = "";
  for (const slide of slides) {
    drawIn(slide);
    const fits = (zoom) => {
      slide.style.zoom = zoom;
      slide.style.width = `${PAGE.width / zoom}px`;
      slide.style.maxHeight = `${PAGE.most / zoom}px`;
      return slide.scrollHeight * zoom <= PAGE.height;
    };
    let [small, large] = [0.2, 1];
    if (fits(large)) continue;
    for (let round = 0; round < 7; round++) {
      const middle = (small + large) / 2;
      if (fits(middle)) small = middle;
      else large = middle;
    }
    fits(small);
  }
});
addEventListener("afterprint", () => {
  delete document.documentElement.dataset.print;
  for (const { style } of slides) style.zoom = style.width = style.maxHeight = "";
});

document.documentElement.dataset.ready = "";
go(Number(location.hash.slice(1)) - 1 || 0, 0, false);
