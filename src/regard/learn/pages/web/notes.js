// Notes: the reader's own questions, kept with the place where they arose: in notes.md, or in the browser.

function setUpNotes() {
  const text = make("textarea", { id: "question", rows: 3, maxLength: 1000 });
  const said = make("p", { className: "soft", role: "status" });
  const keep = make("button", { type: "submit" }, "Keep it");
  const close = button("Close", () => dialog.close());
  const form = make("form", { autocomplete: "off" }, make("h2", { id: "question-title" }, "Your question"), make("p", { className: "soft" }, `What is not clear, or what you would like to know. It is kept ${page.served ? "in notes.md" : "in this browser"}, with the place in the course.`), make("label", { htmlFor: "question", className: "unseen" }, "Your question"), text, said, make("p", { className: "buttons" }, keep, close));
  const dialog = make("dialog", { className: "asking", "aria-labelledby": "question-title" }, form);
  const open = button("Ask a question", () => { said.textContent = ""; dialog.showModal(); }, { className: "ask" });
  if (!page.served) form.querySelector(".buttons").append(download());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const words = text.value.trim().replace(/\s+/g, " ");
    if (!words) {
      said.textContent = "Write a question first.";
      return;
    }
    const name = here()?.id ?? "";
    const note = { text: words, place: `chapter ${page.number}, ${page.title} (${name})`, at: today() };
    store("note", { chapter: page.number, name, text: words }, () => progress.notes.push(note)).then((found) => {
      said.textContent = found ? `Noted in ${found.path}.` : keeping ? "Noted." : "Noted until you leave the page: this browser keeps nothing.";
      text.value = "";
    }, (error) => { said.textContent = error.message; });
  });
  document.body.append(open, dialog);
}

const today = () => new Date().toLocaleDateString("sv"); // 2026-11-25

/** A button that saves the notes of all chapters as a file, in the form of the terminal's notes.md. */
function download() {
  return button("Save my questions as notes.md", () => {
    if (keeping) readKept();
    const text = ["# Questions of my own\n", ...progress.notes.map(({ text: words, place, at }) => `## ${words}\n\n${place}, ${at}\n`)].join("\n");
    const link = make("a", { href: URL.createObjectURL(new Blob([text], { type: "text/markdown" })), download: "notes.md" });
    link.click();
    URL.revokeObjectURL(link.href);
  }, { className: "download" });
}
