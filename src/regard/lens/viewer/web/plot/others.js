// Each weight next to the mean weight that the other rows have on the same key: of a key to which every row attends, this is as much.

/** The mean weight of the other rows on these keys in sum. p: the mean of `high` rows, whose keys it sums. NaN if no other row may attend. */
function othersOf(tracks, p, places, high = 1) {
  if (!tracks?.received || !tracks.readers) return NaN;
  let sum = -high * p, count = 0;
  for (const j of places) [sum, count] = [sum + tracks.received[j], count + tracks.readers[j]];
  return meanOf(sum, count / places.length - high);
}
const meanOf = (sum, count) => (count >= 0.5 ? Math.max(0, sum) / count : NaN);

const sumsOfKeys = new WeakMap();
/** The cumulative sums over the keys of what they receive, and of how many rows may attend to them. */
function sumsOver(tracks) {
  if (!sumsOfKeys.has(tracks)) {
    sumsOfKeys.set(tracks, [tracks.received, tracks.readers].map((values) => {
      const sums = new Float64Array(values.length + 1);
      values.forEach((value, j) => { sums[j + 1] = sums[j] + (value || 0); }); // NaN counts as 0
      return sums;
    }));
  }
  return sumsOfKeys.get(tracks);
}

/** The same for a cell of `high` rows and `wide` keys from j on, pooled as chosen; of the largest weight, the mean of all rows on one key. */
function othersOfCell(tracks, p, j, high, wide, pool) {
  if (!tracks?.received || !tracks.readers) return NaN;
  if (wide === 1 && high === 1) return meanOf(tracks.received[j] - p, tracks.readers[j] - 1);
  const stop = Math.min(tracks.received.length, j + wide);
  const [received, readers] = sumsOver(tracks).map((sums) => sums[stop] - sums[j]);
  if (pool === "largest") return meanOf(received, readers);
  return meanOf(received - high * p, readers / (stop - j) - high);
}
