// The findings of the audit: a list at the top of the page; folded at its end if there are only notes.

const findingsList = {
  name: "findings",

  draw(changed) {
    if (!changed.has("run")) return;
    const { findings } = runs[state.run];
    $("findings").hidden = !findings.length;
    const order = ["fault", "warning", "note"];
    const sorted = [...findings].sort((a, b) => order.indexOf(a.severity) - order.indexOf(b.severity));
    const count = (severity) => findings.filter((found) => found.severity === severity).length;
    const counts = order.filter(count).map((severity) => `${count(severity)} ${severity}${count(severity) === 1 ? "" : "s"}`).join(", ");
    const serious = count("fault") + count("warning") > 0;
    document.querySelector(serious ? "main" : "footer").before($("findings")); // notes need no fix
    $("findings").replaceChildren(element("details", undefined, { className: "fold", open: serious },
      element("summary", undefined, {}, element("h2", `Audit findings: ${counts}`, { id: "findings-title" })),
      element("ol", undefined, {}, ...sorted.map((found) => this.one(found)))));
  },

  one(found) {
    const heading = element("div", undefined, { className: "bar" }, element("span", found.severity, { className: "severity" }), element("h3", undefined, {}, element("bdi", found.check.replaceAll("-", " "))), element("bdi", found.where, { className: "soft" }));
    if (Number.isInteger(found.call) && found.call < runs[state.run].calls.length) {
      heading.append(element("button", "show", { type: "button", ariaLabel: `show ${found.check}, ${found.where}`, onclick: () => this.lead(found) }));
    }
    const parts = [["measured", found.measured], ["likely cause", found.cause], ["fix", found.fix]].filter(([, text]) => text);
    const made = element("li", undefined, {}, heading, element("dl", undefined, {}, ...parts.flatMap(([name, text]) => [element("dt", name), element("dd", undefined, {}, element("bdi", text))])));
    made.dataset.severity = found.severity;
    return made;
  },

  /** Chooses the head and row that a finding is about. */
  async lead(found) {
    const { call, row } = found, [head] = badges.heads(found);
    await choose({ call, ...(Number.isInteger(head) ? { head } : {}), ...(Number.isInteger(row) ? { query: row } : {}) });
    $("atlas").scrollIntoView({ block: "nearest" });
  },
};
screens.push(findingsList);
