// Lines as the server sends them → what is drawn: attempts joined, smoothed, with their bounds. Pure.

/** One curve per run (its attempts joined), and one per superseded tail. */
export function curvesOf(runs, { smoothing, superseded }, byTime = false) {
  const curves = [];
  for (const [at, { run, lines }] of runs.entries()) {
    const current = lines.filter((line) => !line.superseded);
    if (current.length) curves.push({ ...joined(current), run, at, byTime, superseded: false, attempts: boundaries(current) });
    if (!superseded) continue;
    for (const line of lines.filter((one) => one.superseded)) {
      curves.push({ ...joined([line]), run, at, superseded: true, attempt: line.attempt, attempts: [] });
    }
  }
  for (const curve of curves) curve.smooth = smoothing > 0 && !curve.superseded ? ema(curve.y, smoothing) : null;
  return curves;
}

function joined(lines) {
  const x = [], y = [], low = [], high = [], nonfinite = [];
  for (const line of lines) {
    for (let at = 0; at < line.x.length; at++) {
      x.push(line.x[at]);
      y.push(line.last[at]);
      low.push(line.low ? line.low[at] : line.last[at]);
      high.push(line.high ? line.high[at] : line.last[at]);
    }
    nonfinite.push(...line.nonfinite);
  }
  return { x, y, low, high, nonfinite, bounds: lines.some((line) => line.low !== null) };
}

function boundaries(lines) {
  return lines.slice(1).filter((line) => line.x.length).map((line) => ({ x: line.x[0], attempt: line.attempt }));
}

/** Exponential moving average that does not start at zero. Gaps stay gaps. */
export function ema(values, weight) {
  let mean = 0, share = 0;
  return values.map((value) => {
    if (value === null) return null;
    mean = mean * weight + value * (1 - weight);
    share = share * weight + (1 - weight);
    return mean / share;
  });
}

/** All x in one sorted column, and each curve's place in it: undefined where it has no point (no gap is drawn there). */
export function aligned(columns) {
  const all = [...new Set(columns.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const place = new Map(all.map((x, at) => [x, at]));
  const tables = columns.map(({ x, y }) => {
    const column = new Array(all.length);
    for (let at = 0; at < x.length; at++) column[place.get(x[at])] = y[at];
    return column;
  });
  return [all, ...tables];
}

/** Lowest and highest of what is drawn between two x. */
export function extent(curves, from, to, positive) {
  let low = Infinity, high = -Infinity;
  for (const curve of curves) {
    for (let at = first(curve.x, from); at < curve.x.length && curve.x[at] <= to; at++) {
      for (const value of [curve.low[at], curve.high[at], curve.y[at]]) {
        if (value === null || value === undefined || (positive && value <= 0)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  return low <= high ? [low, high] : null;
}

/** The index of the first x that is not below `value`. */
export function first(x, value) {
  let low = 0, high = x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (x[middle] < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

export function nearest(x, value) {
  if (!x.length) return -1;
  const after = first(x, value);
  if (after === x.length) return after - 1;
  return after > 0 && value - x[after - 1] < x[after] - value ? after - 1 : after;
}

/** What the caption says of a run's own curve. */
export function summary(curve) {
  const bounds = extent([curve], -Infinity, Infinity, false);
  let last = null, at = null;
  for (let index = curve.y.length - 1; index >= 0 && last === null; index--) {
    last = curve.y[index];
    at = curve.x[index];
  }
  return { last, at, low: bounds?.[0] ?? null, high: bounds?.[1] ?? null, nonfinite: curve.nonfinite };
}
