// Store: what the reader has done, in the form of progress.json. It is kept by the server, or by the browser if it may.

const page = JSON.parse(document.getElementById("data").textContent);
const STORED = "regard-course";
const EMPTY = { current: null, place: {}, answers: {}, exercises: {}, claims: {}, notes: [] };

/** What is known of the reader: the place in each chapter, answers, exercises and claims by "chapter/name", notes. */
const progress = structuredClone(EMPTY);
let keeping = !page.served && keeps(); // whether the browser keeps what is stored
if (page.served) addKnown(page.learner.progress);
else readKept();

/** Replaces what is known by what the browser holds. */
function readKept() {
  Object.assign(progress, structuredClone(EMPTY));
  try {
    Object.assign(progress, JSON.parse(localStorage.getItem(STORED)));
  } catch { /* storage is forbidden, or holds something else */ }
}

/** Adds what the server knows: an answer on its way to it stays. */
function addKnown(found) {
  for (const name of ["place", "answers", "exercises", "claims"]) Object.assign(progress[name], found[name]);
  progress.current = found.current;
}

/** Whether the browser keeps what is stored. */
function keeps() {
  try {
    localStorage.setItem(`${STORED}-test`, "1");
    localStorage.removeItem(`${STORED}-test`);
    return true;
  } catch {
    return false;
  }
}

/** Stores a change: `make` changes progress; the server receives `what` with its `fields`, and its answer is returned. */
async function store(what, fields, make) {
  if (page.served) {
    make();
    return send(what, fields);
  }
  if (keeping) readKept(); // another tab may have stored something meanwhile
  make();
  try {
    localStorage.setItem(STORED, JSON.stringify(progress));
  } catch {
    if (keeping) tell("This browser has no room left: what you do from now on is forgotten when you leave the page.");
    keeping = false;
  }
  return null;
}

/** Sends a change to the server; returns its answer. */
async function send(what, fields) {
  let response;
  try {
    response = await fetch(what, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(fields) });
  } catch {
    throw new Error(GONE);
  }
  const found = await response.json();
  if (!response.ok) throw new Error(found.error);
  return found;
}
