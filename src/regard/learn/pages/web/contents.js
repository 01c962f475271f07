// Contents: what the reader has done of each chapter, and where to go on.

function setUpContents() {
  const list = document.querySelector(".contents");
  const next = make("p", { className: "continue" }, make("a", { href: (list.querySelector('[data-short="True"] a') ?? list.querySelector("a")).getAttribute("href") }, "Begin"));
  list.before(next);
  const own = make("p", { className: "own" });
  if (page.served) own.append("Your files are in ", make("code", { className: "path" }, page.learner.folder), ", your questions in notes.md beside them.");
  else own.append(download(), " ", forgetting());
  list.after(own);
}

/** Fills in the progress. */
function showContents() {
  for (const row of document.querySelectorAll("[data-chapter]")) {
    const number = row.dataset.chapter;
    const of = (entries) => Object.entries(entries).filter(([key]) => key.startsWith(`${number}/`)).map(([, each]) => each);
    const answers = of(progress.answers);
    const words = [];
    if (progress.place[number] === "") words.push("done");
    else if (progress.current === Number(number)) words.push("you are here");
    if (answers.length) words.push(`${answers.length} of ${row.dataset.questions} answered, ${answers.filter(({ right }) => right).length} right`);
    const passed = of(progress.exercises).filter((each) => each.passed).length;
    if (passed) words.push(`${passed} of ${row.dataset.exercises} exercises`);
    const done = row.querySelector(".done");
    done.textContent = words.join(" · ");
    done.classList.toggle("all", progress.place[number] === "");
  }
  showNext();
}

/** Where to go on; at the end of the last chapter, what is left of others. */
function showNext() {
  const rows = [...document.querySelectorAll("[data-chapter]")];
  const place = ({ dataset }) => progress.place[dataset.chapter];
  let row = rows.find(({ dataset }) => Number(dataset.chapter) === progress.current);
  if (!row) return;
  const atEnd = place(row) === "";
  if (atEnd) row = rows.find((each) => place(each) !== "");
  const chapter = (row ?? rows[0]).querySelector("a");
  const begun = row && place(row) !== undefined;
  const words = !row ? "You have finished the course. Read it again" : atEnd ? "You are at the end. Not finished yet" : begun ? "Continue where you stopped" : "Go on";
  const link = document.querySelector(".continue a");
  link.href = chapter.getAttribute("href") + (begun ? `#${encodeURIComponent(place(row))}` : "");
  link.textContent = `${words}: ${chapter.textContent}`;
}

/** A button that forgets what this browser knows of the reader. */
function forgetting() {
  return button("Forget my progress", () => {
    if (!confirm("Forget all answers, places and questions that this browser keeps of the course?")) return;
    try {
      localStorage.removeItem(STORED);
    } catch { /* nothing is kept */ }
    location.reload();
  }, { className: "forget" });
}
