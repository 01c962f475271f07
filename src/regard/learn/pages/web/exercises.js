// Exercises: hints one after another; beside a server, the learner's file and the result of its last check.

const exerciseKey = (name) => `${page.number}/${name}`;

function setUpExercises() {
  for (const name of Object.keys(page.exercises)) {
    const section = document.getElementById(name);
    const hints = [...section.querySelectorAll(".hint")];
    hints.forEach((hint, at) => {
      hint.addEventListener("toggle", () => {
        if (!hint.open || known(name).hints > at) return;
        store("hint", { chapter: page.number, name, number: at + 1 }, () => { known(name).hints = at + 1; }).catch(tell);
        showExercise(section, name);
      });
    });
    if (page.served) setUpFile(section, name);
    showExercise(section, name);
  }
}

/** What is known of an exercise. */
function known(name) {
  return (progress.exercises[exerciseKey(name)] ??= { tries: 0, hints: 0, shown: false, passed: null });
}

/** The file is written when the exercise is read; a button checks it; the solution is shown after a try. */
function setUpFile(section, name) {
  const file = section.querySelector(".file");
  const path = `${page.learner.folder}/${file.querySelector("code").textContent}`;
  const check = button("Check now", () => send("check", { chapter: page.number, name }).catch((error) => showProblem(section, error)), { className: "check" });
  whenNear(section, () => send("start", { chapter: page.number, name }).catch((error) => showProblem(section, error)));
  file.replaceChildren("Write it in ", make("code", { className: "path" }, path), ": each save is checked. ", check);
  section.querySelector(".solution summary").addEventListener("click", (event) => {
    const solution = section.querySelector(".solution");
    if (solution.open || known(name).shown) return;
    event.preventDefault();
    send("show", { chapter: page.number, name }).then(() => {
      known(name).shown = true;
      solution.open = true;
    }, (error) => showProblem(section, error));
  });
}

function showProblem(section, error) {
  section.querySelector(".result").replaceChildren(make("p", { className: "judged wrong" }, error.message));
}

/** Shows how far the reader is with an exercise: one hint more than was opened; beside a server, the last result. */
function showExercise(section, name) {
  const { hints, passed, tries } = known(name);
  section.querySelectorAll(".hint").forEach((hint, at) => { hint.hidden = at > hints; });
  if (!page.served) return;
  section.querySelector(".solution").hidden = !tries;
  if (passed) {
    const after = section.querySelector(".solution .after");
    if (after) section.append(after); // what was to be learnt is then visible to all
  }
  const found = page.learner.results[exerciseKey(name)];
  const checking = page.learner.checking.includes(exerciseKey(name));
  const shown = JSON.stringify([found, checking, passed]);
  const result = section.querySelector(".result");
  if (result.dataset.shown === shown) return; // so that a screen reader does not repeat it
  result.dataset.shown = shown;
  result.classList.toggle("checking", checking);
  if (found) result.replaceChildren(...(checking ? [make("p", { className: "soft" }, "Checking the new version …")] : []), ...message(found));
  else if (checking) result.replaceChildren(make("p", { className: "soft" }, "Checking …"));
  else if (passed) result.replaceChildren(make("p", { className: "judged right" }, passed === "shown" ? "Passed, after you saw a solution." : "You have passed it."));
}

/** The result of a check, in the words of the terminal. */
function message(found) {
  const parts = [make("p", { className: `judged ${found.right ? "right" : "wrong"}` }, found.says)];
  if (found.what) parts.push(make("p", {}, found.what));
  if (found.details.length) parts.push(make("pre", { tabIndex: 0 }, make("samp", {}, found.details.join("\n"))));
  if (found.mistake) parts.push(make("p", { className: "known" }, make("span", { className: "soft" }, "known mistake "), make("strong", {}, found.mistake), found.alike));
  if (found.about.length) parts.push(make("dl", {}, ...found.about.flatMap(([name, words]) => [make("dt", {}, name), make("dd", {}, ...words.split("`").map((each, at) => (at % 2 ? make("code", {}, each) : each)))])));
  if (found.printed) parts.push(make("p", { className: "soft" }, "your code printed"), make("pre", { tabIndex: 0, className: "printed" }, make("samp", {}, found.printed)));
  if (found.unnoted) parts.push(make("p", { className: "note" }, found.unnoted));
  return parts;
}

function showExercises() {
  for (const name of Object.keys(page.exercises)) showExercise(document.getElementById(name), name);
}
