// Questions: an answer is stored before the result is shown; the rest of the chapter unfolds after a prediction.

/** What was typed, in the form that its form reads: a text, texts, or rows of texts. */
function typedOf(section, form) {
  if (form === "choice" || form === "line") return section.querySelector("input:checked")?.value ?? "";
  if (form === "pairs") return [...section.querySelectorAll("select")].map(({ value }) => value);
  if (form === "table") return [...section.querySelectorAll("tr")].map((row) => [...row.querySelectorAll("input")].map(({ value }) => value)).filter((row) => row.length);
  return section.querySelector(".typed").value;
}

/** The same as a text: what the terminal would have read, which progress.json keeps. */
function typedText(typed) {
  if (!Array.isArray(typed)) return typed;
  if (!Array.isArray(typed[0])) return typed.join(" ");
  return typed.map((row) => row.map((cell) => cell.replace(/\s+/g, "")).join(" ")).join("\n");
}

function setUpQuestion(section, question, note) {
  const form = FORMS[question.form];
  const unread = section.querySelector(".unread");
  const answer = section.querySelector(".answer");
  answer.hidden = true;
  const ended = (text, right) => {
    note(text, right);
    closeQuestion(section, question, text, right);
  };
  section.querySelector("form").addEventListener("submit", (event) => {
    event.preventDefault();
    const typed = typedOf(section, question.form);
    const { answer: given, error } = form.read(typed, question.fields);
    unread.textContent = error ?? "";
    if (error) return;
    ended(typedText(typed), form.judge(given, question.fields).right);
  });
  section.querySelector(".skip").addEventListener("click", () => ended("", false));
}

/** Shows the result, what was answered, and why that is wrong; also for an answer that was given earlier, or in the terminal. */
function closeQuestion(section, question, text, right) {
  const typed = text ? typedAgain(text, question) : null;
  if (typed !== null) fillIn(section, question.form, typed);
  const shown = answerShown(section, question);
  const given = text && question.form !== "pairs" && question.form !== "table" ? `You answered ${givenShown(section, question.form, typed, text)}; the answer is ${shown}.` : "";
  const why = right || typed === null ? "" : whyWrong(question, typed);
  const said = make("p", {}, right ? `Right: ${shown}.` : given || `The answer is ${shown}.`);
  for (const control of section.querySelectorAll("form :is(input, select, button)")) control.disabled = true;
  section.querySelector(".fact").hidden = true; // it is said above
  closePart(section, right, said, ...(why ? [make("p", { className: "why" }, why)] : []));
}

/** Shows what is said of an answer to a question or claim, and all that was hidden before it. */
function closePart(section, right, ...words) {
  const judged = section.querySelector(".judged");
  judged.className = `judged ${right ? "right" : "wrong"}`;
  judged.replaceChildren(...words);
  section.querySelector(".answer").hidden = false;
  section.querySelector(".buttons").hidden = true;
  section.dataset.closed = "";
  whenNear(section, () => result(section));
}

/** The explanation of a wrong answer. */
function whyWrong({ form, fields }, typed) {
  const { answer, error } = FORMS[form].read(typed, fields);
  return error ? "" : FORMS[form].judge(answer, fields).why;
}

/** Puts an answer into the fields of its question. */
function fillIn(section, form, typed) {
  if (form === "choice" || form === "line") section.querySelector(`input[value="${typed}"]`).checked = true;
  else if (form === "pairs") section.querySelectorAll("select").forEach((select, at) => { select.value = typed[at]; });
  else if (form === "table") section.querySelectorAll("td input").forEach((input, at) => { input.value = typed.flat()[at]; });
  else section.querySelector(".typed").value = typed;
}

/** A choice in its own words: the page shows no numbers beside choices. */
const choiceShown = (section, number) => `“${section.querySelector(`input[value="${number}"]`).closest("label").textContent.trim()}”`;

function givenShown(section, form, typed, text) {
  if (typed === null) return text;
  return form === "choice" ? choiceShown(section, typed) : form === "line" ? `line ${typed}` : text;
}

/** The right answer as the page shows it. */
function answerShown(section, { form, fields, shown }) {
  if (form === "choice") return choiceShown(section, fields.answer);
  if (form === "pairs") return fields.answer.map((each, at) => `${nameOf(at)} ${fields.right_side[each - 1]}`).join("; ");
  return shown;
}

function setUpQuestions() {
  for (const [name, question] of Object.entries(page.questions)) {
    const section = document.getElementById(name);
    setUpQuestion(section, question, (given, right) => {
      const stored = store("answer", { key: question.key, given }, () => { progress.answers[question.key] ??= { given, right, again: [] }; });
      stored.then((noted) => noted && Object.assign(progress.answers[question.key], noted)).catch(tell);
      unfold();
    });
  }
  for (const [key, question] of Object.entries(page.again ?? {})) {
    const noted = progress.answers[key];
    if (!noted || noted.right || noted.again.some(({ chapter }) => chapter === page.number)) continue;
    const section = document.querySelector(`[data-key="${key}"]`);
    section.hidden = Boolean(document.querySelector(".again:not([hidden])")); // one after another
    section.dataset.waits = "";
    setUpQuestion(section, question, (given, right) => {
      delete section.dataset.waits;
      const next = document.querySelector(".again[hidden][data-waits]");
      if (next) next.hidden = false;
      store("again", { key, chapter: page.number, given }, () => noteAgain(key, right)).catch(tell);
    });
  }
}

function noteAgain(key, right) {
  const again = progress.answers[key]?.again ?? [];
  if (!again.some(({ chapter }) => chapter === page.number)) again.push({ chapter: page.number, right });
}

/** Closes the questions that were answered, here or elsewhere, with the first answer. */
function showAnswers() {
  for (const [name, question] of Object.entries(page.questions)) {
    const section = document.getElementById(name);
    const noted = progress.answers[question.key];
    if (noted && section.dataset.closed === undefined) closeQuestion(section, question, noted.given, noted.right);
  }
}

/** Hides all that follows the first prediction which is not answered. */
function unfold() {
  const all = parts();
  const open = all.findIndex((part) => page.questions[part.id] && part.classList.contains("predict") && !progress.answers[page.questions[part.id].key]);
  all.forEach((part, at) => { part.hidden = open >= 0 && at > open; });
  const more = document.getElementById("more") ?? make("p", { id: "more", className: "soft" }, "The chapter goes on when you have answered.");
  more.hidden = open < 0;
  if (open >= 0) all[open].after(more);
}
