// Claims: the reader judges a statement before its program does.

function setUpClaims() {
  for (const [name, { outcome }] of Object.entries(page.claims)) {
    const section = document.getElementById(name);
    const key = `${page.number}/${name}`;
    section.querySelector(".answer").hidden = true;
    for (const button of section.querySelectorAll(".buttons button")) {
      button.addEventListener("click", () => {
        store("claim", { chapter: page.number, name, given: button.value }, () => { progress.claims[key] ??= button.value; }).catch(tell);
        closeClaim(section, button.value, outcome);
      });
    }
  }
}

/** Shows whether a claim is true, and its program. */
function closeClaim(section, given, outcome) {
  const right = given === outcome;
  const words = section.querySelector(`.buttons button[value="${given}"]`)?.textContent ?? "";
  closePart(section, right, `You said “${words}” ${right ? "Right." : "Not so:"}`);
}

/** Closes the claims that were judged, here or elsewhere. */
function showClaims() {
  for (const [name, { outcome }] of Object.entries(page.claims)) {
    const section = document.getElementById(name);
    const given = progress.claims[`${page.number}/${name}`];
    if (given && section.dataset.closed === undefined) closeClaim(section, given, outcome);
  }
}
