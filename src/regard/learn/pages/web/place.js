// Place: the furthest part at which the reader has stayed for a moment. Terminal and page go on from there.

const STAY = 1200; // milliseconds in which nothing happens

const parts = () => [...document.querySelectorAll("main > .part:not(.again)")];

/** The part in the upper half of the window. */
function here() {
  const shown = parts().filter((part) => !part.hidden);
  return shown.findLast((part) => part.getBoundingClientRect().top < innerHeight / 2) ?? shown[0];
}

let staying = 0;

/** Notes the place if nothing happens for a moment. */
function noteSoon() {
  clearTimeout(staying);
  staying = setTimeout(stay, STAY);
}

function setUpPlace() {
  for (const happens of ["scroll", "click", "keydown", "visibilitychange"]) document.addEventListener(happens, noteSoon, { passive: true });
  noteSoon();
}

/** Notes the place, if it is further than the one that is known. */
function stay() {
  if (document.hidden || progress.place[page.number] === "") return;
  const names = parts().map(({ id }) => id);
  const name = atEnd() ? "" : here().id;
  const before = names.indexOf(progress.place[page.number]);
  if (name && names.indexOf(name) <= before && progress.current === page.number) return;
  store("place", { chapter: page.number, name }, () => {
    if (name === "" || names.indexOf(name) > before) progress.place[page.number] = name;
    progress.current = name === "" && page.following !== null ? page.following : page.number;
  }).catch(tell);
}

/** Whether the end of the chapter is in sight, and nothing is left to answer or, beside a server, to write. */
function atEnd() {
  const last = parts().at(-1);
  return !last.hidden && last.getBoundingClientRect().bottom <= innerHeight
    && Object.values(page.questions).every(({ key }) => progress.answers[key])
    && (!page.served || Object.keys(page.exercises).every((name) => known(name).passed));
}

/** Goes to the part that the address names, now that all that may be read is shown. */
function goToPlace() {
  const name = decodeURIComponent(location.hash.slice(1));
  const part = name && document.getElementById(name);
  if (part && !part.closest("[hidden]")) part.scrollIntoView();
}
