// A field for a number: typed, or moved with the up and down arrows (with Shift in small steps).

const plainNumber = (value) => String(Number(value.toPrecision(12)));
/** The number that a text says, or NaN. */
const numberTyped = (text) => (text.trim() ? Number(text.trim().replaceAll("−", "-").replace(",", ".")) : NaN);

/** The field, named for tests as `shown` names numbers. input(value) is called for every number that is typed or moved to. */
function numberField(name, label, value, input, { step = 0.5, most = 1000 } = {}) {
  const field = make("input", { type: "text", inputMode: "decimal", className: "numberfield", "data-name": name, "aria-label": label, autocomplete: "off", spellcheck: false });
  const to = (next, rewritten) => {
    const known = Number.isFinite(next) && Math.abs(next) <= most;
    field.setAttribute("aria-invalid", String(!known));
    if (!known) return;
    showField(field, next, rewritten);
    input(next);
  };
  field.addEventListener("input", () => to(numberTyped(field.value), false));
  field.addEventListener("blur", () => { field.setAttribute("aria-invalid", "false"); showField(field, Number(field.getAttribute("value")), true); });
  field.addEventListener("keydown", (event) => {
    const way = stepOf(event, { ArrowUp: 1, ArrowDown: -1 });
    if (way) to(Number((Number(field.getAttribute("value")) + way * (event.shiftKey ? step / 10 : step)).toFixed(9)), true);
  });
  showField(field, value, true);
  return field;
}
/** Shows a number in its field; the text is left alone while someone types in it. */
function showField(field, value, rewritten = document.activeElement !== field) {
  const whole = String(value);
  if (field.getAttribute("value") !== whole) field.setAttribute("value", whole);
  const text = plainNumber(value).replace("-", "−");
  if (rewritten && field.value !== text) field.value = text;
}
