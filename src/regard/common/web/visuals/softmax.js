// Softmax: scores become weights, at a temperature. The visual `overflow` adds its exponentials.

visuals["softmax"] = function softmaxVisual(root, { scores, labels = scores.map((_, at) => `key ${at}`), temperature = 1, range = [-12, 12] }, more = [], changed = () => {}) {
  const state = { scores: [...scores], temperature, added: 0 };

  const bars = scores.map((score, at) => {
    const made = { score: shown(`score-${at}`, score), weight: shown(`weight-${at}`, 0), bar: make("div", { className: "softmax-bar" }) };
    const moved = () => change({ scores: state.scores.with(at, made.input.valueAsNumber) });
    made.input = make("input", { type: "range", min: Math.min(range[0], score), max: Math.max(range[1], score), step: 0.1, value: String(score), "aria-label": `score of ${labels[at]}`, oninput: moved });
    made.row = make("div", { className: "softmax-row", role: "group", "aria-label": labels[at] },
      make("b", {}, labels[at]), make("span", { className: "softmax-score" }, made.input, made.score), make("div", { className: "softmax-track" }, made.bar), make("span", { className: "softmax-weight" }, made.weight));
    return made;
  });
  root.append(
    controls(
      slider("temperature", { min: -1, max: 1, step: 0.05, value: Math.log10(temperature), text: (power) => digits(ofPower(power), 2) }, (power) => change({ temperature: ofPower(power) })),
      ...more,
    ),
    make("div", { className: "softmax-bars" },
      make("div", { className: "softmax-row softmax-head", "aria-hidden": "true" }, make("span", {}, "key"), make("span", {}, "score"), make("span", {}, "weight")), ...bars.map(({ row }) => row)),
  );

  function ofPower(power) { return Number((10 ** power).toPrecision(2)); }

  function change(part) {
    Object.assign(state, part);
    const divided = state.scores.map((score) => (score + state.added) / state.temperature);
    const weights = softmax(divided);
    bars.forEach(({ score, weight, bar, input }, at) => {
      show(score, state.scores[at] + state.added);
      show(weight, weights[at]);
      bar.style.width = `${100 * weights[at]}%`;
      input.setAttribute("aria-valuetext", `${digits(state.scores[at])}: weight ${digits(weights[at])}`);
      if (input.valueAsNumber !== state.scores[at]) input.value = String(state.scores[at]);
    });
    changed(divided);
  }
  change({});
  return { state, change };
};
