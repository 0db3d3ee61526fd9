// Lines as the server sends them → what is drawn: attempts joined, smoothed, with their bounds. Pure.
import { oddWord, spansOf } from "./chart-odd.js";

/** One curve per run (its attempts joined), and one per superseded tail. `endsOdd`: the first run's newest is no number. */
export function curvesOf(runs, { smoothing, superseded }, byTime = false, endsOdd = false) {
  const curves = [];
  for (const [at, { run, lines }] of runs.entries()) {
    const current = lines.filter((line) => !line.superseded);
    if (current.length) curves.push({ ...joined(current), run, at, byTime, superseded: false, attempts: boundaries(current) });
    if (!superseded) continue;
    for (const line of lines.filter((one) => one.superseded)) {
      curves.push({ ...joined([line]), run, at, superseded: true, attempt: line.attempt, attempts: [] });
    }
  }
  for (const curve of curves) {
    curve.smooth = smoothing > 0 && !curve.superseded ? ema(curve.y, smoothing) : null;
    curve.spans = curve.superseded ? [] : spansOf(curve, endsOdd && curve.at === 0);
  }
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

/** All x in one sorted column, and each curve's place in it: undefined where it has no point (no gap is drawn there), but null
 * between a null and the curve's own points beside it, where other curves' points must not close the gap. */
export function aligned(columns) {
  const all = [...new Set(columns.flatMap(({ x }) => x))].sort((a, b) => a - b);
  const place = new Map(all.map((x, at) => [x, at]));
  const tables = columns.map(({ x, y }) => {
    const column = new Array(all.length);
    for (let at = 0; at < x.length; at++) column[place.get(x[at])] = y[at];
    for (let at = 1; at < x.length; at++) {
      if (y[at - 1] === null || y[at] === null) column.fill(null, place.get(x[at - 1]) + 1, place.get(x[at]));
    }
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
        if (!fits(value, positive)) continue;
        if (value < low) low = value;
        if (value > high) high = value;
      }
    }
  }
  return low <= high ? [low, high] : null;
}

/** The 1st to the 99th percentile of what is drawn between two x: at least one value of each end is left out, if there are many. */
export function usual(curves, from, to, positive) {
  const lows = [], highs = [];
  for (const curve of curves) {
    for (let at = first(curve.x, from); at < curve.x.length && curve.x[at] <= to; at++) {
      if (fits(curve.low[at], positive)) lows.push(curve.low[at]);
      if (fits(curve.high[at], positive)) highs.push(curve.high[at]);
    }
  }
  if (!lows.length || !highs.length) return extent(curves, from, to, positive);
  lows.sort((a, b) => a - b);
  highs.sort((a, b) => a - b);
  const low = lows[Math.ceil(0.01 * (lows.length - 1))], high = highs[Math.floor(0.99 * (highs.length - 1))];
  return low <= high ? [low, high] : extent(curves, from, to, positive);
}

const fits = (value, positive) => value !== null && value !== undefined && !(positive && value <= 0);

/** How many places of the chart lie outside of what it shows: {above, below}, and the farthest values; null: none. */
export function outside(curves, [from, to], [low, high], positive) {
  let above = 0, below = 0;
  for (const curve of curves) {
    for (let at = first(curve.x, from); at < curve.x.length && curve.x[at] <= to; at++) {
      if (fits(curve.high[at], positive) && curve.high[at] > high) above += 1;
      if (fits(curve.low[at], positive) && curve.low[at] < low) below += 1;
    }
  }
  if (!above && !below) return null;
  const [lowest, highest] = extent(curves, from, to, positive);
  return { above, below, lowest, highest };
}

/** A zoom by the keyboard about `middle`: null at an end that reaches what there is, which leaves that end open. */
export function zoomedBy(factor, middle, [from, to], [low, high], least = 0) {
  const begin = middle - (middle - from) * factor, end = middle + (to - middle) * factor;
  if (end - begin < least) return [from, to];
  return [begin <= low ? null : begin, end >= high ? null : end];
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

/** The same, but -1 where the curve has not begun or is over: farther off than half the way to its next point would be. */
export function nearestOn(x, value) {
  const at = nearest(x, value);
  if (at < 0 || (value >= x[0] && value <= x.at(-1))) return at;
  const gap = x.length < 2 ? 0 : at === 0 ? x[1] - x[0] : x[at] - x[at - 1];
  return Math.abs(value - x[at]) <= gap / 2 ? at : -1;
}

/** What the caption says of a run's own curve. */
export function summary(curve) {
  const bounds = extent([curve], -Infinity, Infinity, false);
  const tail = curve.spans.at(-1)?.tail ? curve.spans.at(-1) : null;
  return {
    last: tail ? null : curve.y.at(-1) ?? null,
    odd: tail ? oddWord([tail], tail.to) : null,  // what the last one is instead of a number
    low: bounds?.[0] ?? null, high: bounds?.[1] ?? null,
    // A bucket does not say how many of its values are none.
    count: curve.bounds ? null : curve.y.filter((value) => value === null).length,
  };
}
