// Starts the page: everything that its data names.

/** Says something at the end of the page, also to screen readers. */
function tell(error) {
  const status = document.getElementById("status");
  status.textContent = error.message ?? error;
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
