// Following: what happens elsewhere, in the learner's editor, a terminal or another tab, is shown as it happens. At the end the page starts.

const GONE = "The server has ended. Your files and your progress are kept: start regard learn --serve again, and open its new address.";

/** Shows all that is known of the reader. */
function showAll() {
  if (page.contents) {
    showContents();
    return;
  }
  showAnswers();
  showClaims();
  showExercises();
  unfold();
  noteSoon();
}

/** Waits for changes, one request at a time, and only while the page is seen: a browser opens few connections. */
async function follow() {
  let failed = 0;
  while (failed < 3) {
    if (document.hidden) await new Promise((seen) => { document.addEventListener("visibilitychange", seen, { once: true }); });
    const leaving = new AbortController();
    const leave = () => leaving.abort();
    document.addEventListener("visibilitychange", leave);
    try {
      const response = await fetch(`changes/${page.learner.version}`, { signal: leaving.signal });
      const found = await response.json();
      if (!response.ok) throw new Error(found.error);
      page.learner = found;
      addKnown(found.progress);
      showAll();
      failed = 0;
    } catch (error) {
      if (leaving.signal.aborted) continue;
      failed += 1;
      if (failed === 3) tell(error instanceof TypeError ? GONE : error);
      else await new Promise((later) => { setTimeout(later, 500); });
    } finally {
      document.removeEventListener("visibilitychange", leave);
    }
  }
}

function setUpFollowing() {
  if (page.served) follow();
  else addEventListener("storage", ({ key }) => {
    if (key !== STORED && key !== null) return;
    readKept();
    showAll();
  });
}

/** Says something at the end of the page, also to screen readers. */
function tell(error) {
  document.getElementById("status").textContent = error.message ?? error;
}

if (page.contents) setUpContents();
else {
  setUpQuestions();
  setUpClaims();
  setUpExercises();
  setUpVisuals();
  setUpNotes();
}
showAll();
if (!page.contents) {
  goToPlace();
  setUpPlace();
}
setUpFollowing();
if (!page.served && !keeping) tell("This browser keeps nothing: what you answer is forgotten when you leave the page.");
document.documentElement.dataset.ready = "";
