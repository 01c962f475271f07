// What the laws say that the steps name: sentences of docs/reference/laws.md, which a page without a network cannot link to.

const LAWS_OF_STEPS = { // the number of a law: its name, and what it says
  1: ["Scale, score, mask, softmax", "The logit is s = scale · q·k, with scale = 1/√D by default. The score expression then replaces the logit. The mask then decides which keys a row attends to. The weights are the softmax over the allowed keys, and the output is the weighted mean of the values."],
  2: ["True means \"may attend\"", "In some other libraries, true in a boolean mask means \"may not attend\"."],
  3: ["A query is a position on the key axis", "Row i of the queries has position query_start + i. By default the queries are the last Q of the K keys, so query_start = K − Q."],
  5: ["Fully masked rows", "The output of a fully masked row is 0, its lse is −∞ (without sinks), and its gradients are 0."],
  6: ["Masked keys and values cannot leak", "A key or value that a row does not attend to has no effect on that row, not even if it is NaN or infinite."],
  7: ["lse is the natural logarithm of the denominator", "Parts of the keys can be attended to separately and merged by their lse."],
  8: ["Sinks", "A sink is an additional logit in the denominator, one or more per head. It takes weight, contributes no value, and is differentiable."],
  10: ["Precision", "Sums are accumulated in float32, and in float64 for float64 input."],
  12: ["Infinite scores", "A score of −∞ removes the key exactly as the mask does. A score of +∞ or NaN that a row attends to appears in its output."],
};
const lawWords = (number) => `Law ${number}: ${LAWS_OF_STEPS[number].join(". ")}`;

/** The numbers in words: "law 1", "laws 2, 3 and 6". */
const lawsNamed = (numbers) => (numbers.length === 1 ? `law ${numbers[0]}` : `laws ${numbers.slice(0, -1).join(", ")} and ${numbers.at(-1)}`);

/** The text of the laws, folded. */
function lawsOf(numbers) {
  const lines = numbers.map((number) => element("p", lawWords(number)));
  return element("details", undefined, { className: "note walk-laws" }, element("summary", `What ${lawsNamed(numbers)} ${numbers.length === 1 ? "says" : "say"}`), ...lines);
}
