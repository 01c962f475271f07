// Running: the visuals of a chapter, drawn when they come near the window, and what code prints.

const drawn = new Map(); // the visual of each name, for tests and for readers at the console

/** Calls `then` once, as soon as an element is shown and near the window. */
function whenNear(node, then) {
  const near = new IntersectionObserver((entries) => {
    if (!entries.some(({ isIntersecting }) => isIntersecting)) return;
    near.disconnect();
    then();
  }, { rootMargin: "600px" });
  near.observe(node);
}

function setUpVisuals() {
  for (const figure of document.querySelectorAll("[data-visual]")) whenNear(figure, () => drawVisual(figure));
  for (const section of document.querySelectorAll("main > .reveal")) whenNear(section, () => result(section));
}

/** Asks the server to run code, one program after another: a browser has few connections, and answers need one too. */
let running = Promise.resolve();
function run(name) {
  const found = running.then(() => send("run", { chapter: page.number, name }));
  running = found.catch(() => null);
  return found;
}

async function drawVisual(figure) {
  const name = figure.dataset.visual;
  const { kind, data } = page.visuals[name];
  const place = figure.querySelector(":scope > div");
  let given = data;
  if (page.served && !figure.querySelector(":scope > .note")) {
    place.textContent = "computing …";
    try {
      given = (await run(name)).data;
      place.textContent = "";
    } catch (error) {
      place.textContent = error.message;
      return;
    }
  }
  if (Object.keys(given).length) drawn.set(name, visuals[kind](place, given));
  figure.dataset.drawn = "";
}

/** Runs the code of a part on the server, and shows what it prints; recorded pages have it already. */
async function result(section) {
  if (!page.served || section.dataset.ran !== undefined) return;
  section.dataset.ran = "";
  const output = section.querySelector("samp");
  if (!output) return;
  output.textContent = "running …";
  try {
    output.textContent = (await run(section.id)).text.trimEnd();
  } catch (error) {
    output.textContent = error.message;
    delete section.dataset.ran;
  }
}
