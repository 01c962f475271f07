// The choice of heads: the number of one head; "mean", the mean of the heads of the call; "all", that of the heads of all calls between
// the same axes.

const MEANS = { mean: 1, all: 1 };
const isMean = (head) => typeof head === "string";

/** Whether two calls have the same rows and keys. */
const alikeCalls = (a, b) => ["queries", "keys", "Q", "K", "start"].every((name) => a[name] === b[name]);

/** The numbers of the calls that a choice of heads is computed from. */
function callsOf(n, call, head) {
  const { calls } = runs[n];
  return head === "all" ? calls.flatMap((each, number) => (alikeCalls(each, calls[call]) ? [number] : [])) : [call];
}

const countOf = (n, call, head) => (isMean(head) ? callsOf(n, call, head).reduce((sum, number) => sum + runs[n].calls[number].heads, 0) : 1);

/** The name of a choice of heads: "layer 3, head 5", "mean of the 12 heads of layer 3", "mean of all 72 heads". */
function headTitle(call = state.call, head = state.head, n = state.run) {
  if (!isMean(head)) return `${callTitle(call, n)}, head ${head}`;
  const count = countOf(n, call, head);
  if (head === "mean") return `mean of the ${count} heads of ${callTitle(call, n)}`;
  const { queries, keys } = runs[n].calls[call];
  const kind = callsOf(n, call, head).length === runs[n].calls.length ? "" : ` of ${queries === keys ? queries : `${queries} → ${keys}`}`;
  return `mean of all ${count} heads${kind}`;
}

/** Why the means of a run cannot be shown, and how to see them; "" if they can. */
const noMeans = (n) => (runs[n].means === false ? "Means over the heads of so long a text take too long to compute here. To see them, serve the run: regard look --serve." : "");

/** A list of the heads of a run and of their means. run(): which run; none: the text of an additional first entry without a head; fits(call): which calls are listed. */
class HeadList {
  constructor(id, { none = null, fits = () => true, run = () => state.run, pick }) {
    Object.assign(this, { none, fits, run });
    const chosen = () => {
      const [call, head] = this.node.value.split(".");
      pick(call === "" ? null : { call: Number(call), head: isMeanName(head) ? head : Number(head) });
    };
    this.node = element("select", undefined, { id, className: "head-list", onchange: chosen });
  }

  /** Lists the heads of the run; nothing is built if they are those that are listed. */
  fill() {
    const n = this.run(), missing = noMeans(n);
    const entry = (call, head) => (isMean(head) && missing
      ? { text: `${headTitle(call, head, n)} (not in this file)`, value: `${call}.${head}`, disabled: true, title: missing }
      : { text: headTitle(call, head, n), value: `${call}.${head}` });
    const every = new Set(), groups = []; // [label, entries]; null: no group
    runs[n].calls.forEach((call, number) => {
      if (!this.fits(call)) return;
      const first = callsOf(n, number, "all")[0];
      if (countOf(n, number, "all") > call.heads && !every.has(first)) groups.push([null, [entry(first, "all")]]);
      every.add(first);
      const heads = Array.from({ length: call.heads }, (_, head) => entry(number, head));
      if (call.heads > 1) heads.push(entry(number, "mean"));
      groups.push([capital(callTitle(number, n)), heads]);
    });
    if (this.none !== null) groups.unshift([null, [{ text: this.none, value: "" }]]);
    const listed = JSON.stringify(groups);
    if (listed === this.listed) return;
    this.listed = listed;
    this.node.replaceChildren(...groups.flatMap(([label, entries]) => {
      const options = entries.map(({ text, ...properties }) => element("option", text, properties));
      return label === null ? options : [element("optgroup", undefined, { label }, ...options)];
    }));
  }

  show(call, head) { this.node.value = call === null ? "" : `${head === "all" ? callsOf(this.run(), call, head)[0] : call}.${head}`; }
}
const isMeanName = (text) => Object.hasOwn(MEANS, text);
