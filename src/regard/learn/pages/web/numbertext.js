// Numbers as people type them, as in forms.py: 8,5 · 40 000 · 40,000 · 4·10^10 · 1e-3 · 1/√2 · 50% · −2 · ∞.

const SIGNS = { "−": "-", "–": "-", "**": "^", "·": "*", "×": "*", " x ": "*", "∞": "inf", infinity: "inf", π: "pi" };
const NAMED = { inf: Infinity, nan: NaN, pi: Math.PI, e: Math.E };
const FACTOR = /^([-+]?)(√?)([^\^√%]+)(?:\^([^\^%]+))?(%?)$/;

/** The number that a text means, or null. */
function typedNumber(text) {
  let plain = text.trim().toLowerCase().replace(/^[~≈=]+/, "");
  for (const [sign, instead] of Object.entries(SIGNS)) plain = plain.replaceAll(sign, instead);
  plain = plain.replace(/\s+/g, "").replace(/(?<=\d)[_'](?=\d)/g, "").replace(/sqrt\(([^()]*)\)/g, "√$1");
  const at = plain.indexOf("/");
  const above = productOf(at < 0 ? plain : plain.slice(0, at));
  const below = at < 0 ? 1 : productOf(plain.slice(at + 1));
  if (above === null || below === null || below === 0) return null;
  const number = above / below;
  return Math.abs(number) === Infinity && !plain.includes("inf") ? null : number;
}

function productOf(text) {
  const factors = text.split("*").map(factorOf);
  return factors.includes(null) ? null : factors.reduce((a, b) => a * b, 1);
}

function factorOf(text) {
  const match = FACTOR.exec(text);
  if (!match) return null;
  const [, sign, root, base, power, percent] = match;
  let number = singleOf(base);
  if (number === null) return null;
  if (root) {
    if (number < 0) return null;
    number = Math.sqrt(number);
  }
  if (power !== undefined) {
    const exponent = singleOf(power.replace(/^-/, ""));
    if (exponent === null) return null;
    number **= power.startsWith("-") ? -exponent : exponent;
  }
  return ((sign === "-" ? -1 : 1) * number) / (percent ? 100 : 1);
}

function singleOf(text) {
  if (text in NAMED) return NAMED[text];
  let plain = text;
  if (/^[1-9]\d{0,2}(,\d{3})+(\.\d+)?$/.test(plain)) plain = plain.replaceAll(",", "");
  else if (/^[1-9]\d{0,2}(\.\d{3})+,\d+$/.test(plain)) plain = plain.replaceAll(".", "");
  plain = plain.replaceAll(",", ".");
  return /^(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/.test(plain) ? Number(plain) : null;
}
