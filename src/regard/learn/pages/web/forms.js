// Forms of questions, as in forms.py: read() gives the answer that was typed or an error, judge() says whether it is right, and why not.

/** A number of the data, in which infinities and NaN are texts. */
const numberOf = (value) => (typeof value === "number" ? value : { inf: Infinity, "-inf": -Infinity, nan: NaN }[value]);

function near(given, wanted, tolerance) {
  if (Number.isNaN(wanted) || Number.isNaN(given)) return Number.isNaN(wanted) && Number.isNaN(given);
  if (!Number.isFinite(wanted)) return given === wanted;
  return given === wanted || Math.abs(given - wanted) <= tolerance + 1e-12 * Math.abs(wanted);
}
const whyOf = (fields, same) => (fields.wrong ?? []).find(({ answer }) => same(answer))?.why ?? fields.otherwise ?? "";
const judgedBy = (fields, same) => (same(fields.answer) ? { right: true, why: "" } : { right: false, why: whyOf(fields, same) });
const equalLists = (a, b) => a.length === b.length && a.every((each, at) => each === b[at]);
const nameOf = (at) => String.fromCharCode(65 + at);

/** A stored answer, as the page or the terminal wrote it, in the form that read() takes; null if it does not fit the question. */
function typedAgain(text, { form, fields }) {
  const numbers = text.match(/\d+/g) ?? [];
  const fit = (count, each, most) => count === each.length && each.every((number) => number >= 1 && number <= most);
  switch (form) {
    case "choice": return fit(1, numbers, fields.choices.length) ? numbers[0] : null;
    case "line": return fit(1, numbers, fields.code.trim().split("\n").length) ? numbers[0] : null;
    case "pairs": {
      const apart = numbers.length === 1 && numbers[0].length === fields.left.length ? [...numbers[0]] : numbers; // "312" is 3 1 2
      return fit(fields.left.length, apart, fields.right_side.length) ? apart : null;
    }
    case "table": {
      const rows = text.split(/\n|\|/).map((row) => row.replace(/;|,(?=\s)|,$/g, " ").trim()).filter(Boolean).map((row) => row.split(/\s+/));
      return rows.length === fields.rows.length && rows.every((row) => row.length === fields.columns.length) ? rows : null;
    }
    default: return text;
  }
}

const FORMS = {
  number: {
    read: (text) => {
      const number = typedNumber(text);
      return number === null ? { error: `“${text.trim()}” is not a number; type one such as 8, 0.25, 1/3 or 1e10` } : { answer: number };
    },
    judge: (given, fields) => judgedBy(fields, (wanted) => near(given, numberOf(wanted), fields.tolerance ?? 0)),
  },
  shape: {
    read: (text) => (/^[\s\d,×x()[\]]*$/.test(text) && (/\d/.test(text) || ["()", "[]"].includes(text.trim()))
      ? { answer: (text.match(/\d+/g) ?? []).map(Number) } : { error: `“${text.trim()}” is not a shape; type sizes such as 2, 10, 512` }),
    judge: (given, fields) => judgedBy(fields, (wanted) => equalLists(given, wanted)),
  },
  choice: {
    read: (text) => (text === "" ? { error: "choose one of the answers" } : { answer: Number(text) }),
    judge: (given, fields) => ({ right: given === fields.answer, why: given === fields.answer ? "" : fields.choices[given - 1].why }),
  },
  pairs: {
    read: (texts) => (texts.includes("") ? { error: "choose a partner for each" } : { answer: texts.map(Number) }),
    judge: (given, fields) => {
      const missed = fields.answer.flatMap((right, at) => (right === given[at] ? [] : [at]));
      return { right: !missed.length, why: missed.map((at) => `${nameOf(at)} (${fields.left[at]}): ${fields.why[at]}`).join("\n") };
    },
  },
  table: {
    read: (rows) => {
      const numbers = rows.map((row) => row.map(typedNumber));
      return numbers.some((row) => row.includes(null)) ? { error: "type a number into each cell" } : { answer: numbers };
    },
    judge: (given, fields) => {
      const wrong = fields.answer.flatMap((row, i) => row.flatMap((right, j) => (near(given[i][j], numberOf(right), fields.tolerance ?? 0) ? [] : [[i, j]])));
      const lines = wrong.map(([i, j]) => `${fields.rows[i]}, ${fields.columns[j]}: not ${given[i][j]}, but ${fields.answer[i][j]}`);
      return { right: !wrong.length, why: [...lines, ...new Set(wrong.map(([i]) => fields.why[i]))].join("\n") };
    },
  },
  line: {
    read: (text) => (text === "" ? { error: "choose a line" } : { answer: Number(text) }),
    judge: (given, fields) => {
      const right = [fields.answer].flat().includes(given);
      return { right, why: right ? "" : whyOf(fields, (wanted) => wanted === given) };
    },
  },
};
