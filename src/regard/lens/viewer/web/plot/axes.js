// The margins of a plot: tokens or positions along both axes, segments, and bars with figures of rows and keys.

/** The sizes of the margins, which depend on the width of the plot. */
function gutters(outer, kind) {
  const narrow = outer < 470;
  const track = kind === "tracks" ? (narrow ? 13 : 20) : 0, labels = narrow ? 70 : 78;
  return { track, labels, upright: 60, left: 2 * (track && track + 4) + labels + 9, top: (track && track + 8) + 60 + 9, right: 8, bottom: 3 };
}

const TRACKS = {
  received: { title: "received (log)", place: (value, call) => (value > 0 ? 1 + Math.log10(value / call.Q) / 6 : 0),
              words: (value, call) => `receives ${percent(value / call.Q, 2)} of all weight` },
  spread: { title: "entropy", place: (value) => value },
  special: { title: "special", place: (value) => value },
};

/** The figures of a row as text: its entropy, and its weight on special tokens, if there are any. */
function rowWords(tracks, i) {
  const attended = Math.round(tracks.attended[i]);
  const entropy = attended > 1 ? `entropy ${percent(tracks.spread[i], 2)} of the maximum possible` : attended ? "one key: nothing to spread" : "no key is allowed";
  return [entropy, ...(keyAxis().special.includes(true) ? [`${percent(tracks.special[i], 2)} on special tokens`] : [])].join(", ");
}

const loadedTracks = new Memory(12);
/** The figures of rows and keys of a head in run n, by default of the chosen one, if they are loaded, otherwise undefined. */
const tracksNow = (n, { call, head } = state) => loadedTracks.get(`${n}-${call}-${head}`);
async function tracksOf(n, { call, head } = state) {
  const name = `${n}-${call}-${head}`;
  return loadedTracks.get(name) ?? loadedTracks.set(name, await sourceOf(n).tracks(n, call, head));
}

function drawMargins(plot, context, at) {
  const keys = { of: runs[plot.run()].axes[plot.call.keys], first: at.column, step: at.kx, length: plot.width, most: plot.call.K, across: true };
  const rows = { of: runs[plot.run()].axes[plot.call.queries], first: at.row, step: at.ky, length: plot.height, most: Math.min(plot.call.Q, plot.place.rows), across: false };
  for (const side of [keys, rows]) {
    side.last = Math.min(side.most, side.first + side.length / side.step);
    side.pen = penOf(plot, context, side);
    if (side.step >= 11) tokenLabels(plot, context, side);
    else { positionLabels(plot, context, side); segmentNames(context, side); }
    segmentBand(plot, side);
    differences(plot, side);
  }
  const tracks = plot.track && tracksNow(plot.run());
  if (!plot.track) return;
  trackBars(plot, context, keys, "received", tracks, 0);
  trackBars(plot, context, rows, "spread", tracks, 0);
  if (keys.of.special.includes(true)) trackBars(plot, context, rows, "special", tracks, plot.track + 4);
}

/** Drawing along an axis: fill(from, to, near, far) in pixels along the axis and away from the outer edge, and text. */
function penOf(plot, context, { across }) {
  const [start, inner] = across ? [plot.left, plot.top] : [plot.top, plot.left];
  return {
    fill(from, to, near, far, tint, alpha = 1) {
      Object.assign(context, { fillStyle: tint, globalAlpha: alpha });
      const [a, b] = [start + Math.max(0, from), start + Math.min(across ? plot.width : plot.height, to)];
      if (b > a) across ? context.fillRect(a, near, b - a, far - near) : context.fillRect(near, a, far - near, b - a);
      context.globalAlpha = 1;
    },
    /** Writes at a place along the axis, so far outside of the matrix; turned: a quarter to the left. */
    write(text, along, away, { align = "center", baseline = "middle", turned = false, direction = "ltr" }) {
      context.save();
      across ? context.translate(start + along, inner - away) : context.translate(inner - away, start + along);
      if (turned) context.rotate(-Math.PI / 2);
      Object.assign(context, { textAlign: align, textBaseline: baseline, direction });
      context.fillText(text, 0, 0);
      context.restore();
    },
    start, inner,
  };
}

const alongAxis = (side, position) => (position - side.first) * side.step;

function tokenLabels(plot, context, side) {
  const { of, across, pen } = side;
  const room = (across ? plot.upright : plot.labels) - 6;
  for (let i = Math.floor(side.first); i < side.last; i++) {
    const middle = alongAxis(side, i + 0.5);
    if (middle < 0 || middle > side.length) continue;
    const chosen = across ? i === plot.place.key : i === plot.place.query;
    context.font = `${chosen ? "600 " : ""}${Math.min(12.5, side.step * 0.92)}px system-ui, sans-serif`;
    context.fillStyle = chosen ? css("--accent") : of.special[i] ? css("--soft") : css("--ink");
    const flat = across && side.step >= 54;
    const text = fittedLabel(context, of, i, flat ? side.step - 6 : room);
    pen.write(text, middle, 11, { align: flat ? "center" : across ? "left" : "right", turned: across && !flat, direction: directionOf(text) });
  }
}

/** A token on one line, without spaces at its ends; a token of spaces is shown as ␣. */
const tokenText = (word) => clip(word, 60).replace(/\s+/g, " ").trim() || "␣";

/** A token, truncated to fit; what the model saw of unknown characters is left out if it does not fit as well. */
function fittedLabel(context, of, i, room) {
  const whole = fittedText(context, tokenText(wordOf(of, i, 60)), room);
  return of.unknown?.[i] && whole.endsWith("…") ? fittedText(context, tokenText(of.tokens[i]), room) : whole;
}

const fitted = new Memory(4000);
/** The text, truncated to fit. */
function fittedText(context, text, room) {
  return fitted.get(`${context.font} ${Math.round(room)} ${text}`, () => fit(context, text, room));
}
function fit(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  const parts = characters(text);
  while (parts.length && context.measureText(`${parts.join("")}…`).width > room) parts.pop();
  return parts.length ? `${parts.join("")}…` : "";
}

/** The round step between labeled positions. */
function tickStep(step, apart) {
  const least = apart / step;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((times) => times * power).find((size) => size >= least) ?? 10 * power;
}

function positionLabels(plot, context, side) {
  const { across, pen } = side;
  const size = tickStep(side.step, across ? 58 : 34);
  Object.assign(context, { font: "11px system-ui, sans-serif", fillStyle: css("--soft") });
  for (let i = Math.ceil(side.first / size) * size; i < side.last; i += size) {
    const middle = alongAxis(side, i + 0.5);
    if (middle < 0 || middle > side.length) continue;
    pen.fill(middle - 0.5, middle + 0.5, pen.inner - 12, pen.inner - 8, css("--soft"));
    const text = i.toLocaleString("en");
    const half = context.measureText(text).width / 2;
    pen.write(text, across ? clamp(middle, half - 4, side.length + plot.right - half) : clamp(middle, 6, side.length - 6), 15, across ? { baseline: "alphabetic" } : { align: "right" });
  }
}

/** The names of segments, shown when positions are shown instead of tokens. */
function segmentNames(context, side) {
  Object.assign(context, { font: "11px system-ui, sans-serif", fillStyle: css("--ink") });
  for (const [start, stop, name] of side.of.segments) {
    const [from, to] = [Math.max(0, alongAxis(side, start)), Math.min(side.length, alongAxis(side, Math.min(stop, side.most)))];
    if (to - from < 24) continue;
    side.pen.write(fittedText(context, name, to - from - 6), (from + to) / 2, side.across ? 34 : 58, { turned: !side.across, baseline: "alphabetic" });
  }
}

function segmentBand(plot, side) {
  side.of.segments.forEach(([start, stop], number) => {
    if (stop < side.first || start > side.last) return;
    side.pen.fill(alongAxis(side, start), alongAxis(side, Math.min(stop, side.most)), side.pen.inner - 6, side.pen.inner - 2, number % 2 ? css("--soft") : css("--accent"), 0.55);
  });
}

/** Marks positions where the tokens of two compared runs differ. */
function differences(plot, side) {
  const other = plot.differing?.(side.across ? "keys" : "queries");
  if (other) trackBlocks(side, other, (from, to) => side.pen.fill(from, Math.max(to, from + 2), side.pen.inner - 3, side.pen.inner, css("--out")));
}

/** Calls draw(from, to, value) for visible bars with a value other than 0, including NaN: the largest of the values that share a pixel. */
function trackBlocks(side, values, draw) {
  const size = Math.max(1, Math.floor(1 / side.step));
  for (let at = Math.max(0, Math.floor(side.first / size) * size); at < side.last; at += size) {
    const value = Math.max(...values.subarray(at, at + size));
    if (value !== 0) draw(alongAxis(side, at), alongAxis(side, Math.min(side.most, at + size)), value);
  }
}

function trackBars(plot, context, side, name, tracks, near) {
  const { pen, across } = side;
  const { title, place } = TRACKS[name];
  pen.fill(0, alongAxis(side, side.last), near, near + plot.track, css("--raised"));
  if (tracks) trackBlocks(side, tracks[name], (from, to, value) => {
    const none = Number.isNaN(value);
    const tall = none ? plot.track : clamp(place(value, plot.call), 0, 1) * plot.track;
    pen.fill(from, side.step >= 4 ? to - 1 : to, across ? near + plot.track - tall : near, across ? near + plot.track : near + tall, none ? css("--nan") : css("--soft"), 0.8);
  });
  Object.assign(context, { font: "11px system-ui, sans-serif", fillStyle: css("--soft") });
  pen.write(title, across ? -7 : -5, pen.inner - near - plot.track / 2, { align: across ? "right" : "left", turned: !across });
}
