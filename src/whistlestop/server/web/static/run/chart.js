// One plot: uPlot with our scales, a crosshair that all charts share, zoom by drag. The only module that knows uPlot.
import { html, useEffect, useLayoutEffect, useRef } from "../lib.js";
import uPlot from "../vendor/uplot.js";
import { aligned, extent, usual } from "./chart-lines.js";
import { drawAttempts, drawBounds, drawNonfinite, drawOutside } from "./chart-draw.js";
import { dashOf } from "./chart-theme.js";

const HEIGHT = 200;
const CROSSHAIR = "charts";  // plots with this key share one
const LINE = 1.5;
const EDGE = 30;  // half of a long label: 1,000,000

/** `curves` as of chart-lines.js; `window`: {from, to}, null where it is open; `handle.current` gets {move, at}. */
export function Plot({ curves, window, log, trimmed, theme, label, onCursor, onZoom, onReset, handle, tall }) {
  const host = useRef(null);
  const now = useRef({});
  now.current = { ...now.current, curves, window, log, trimmed, theme, label, onCursor, onZoom, onReset };
  const plot = useRef(null);
  const shape = JSON.stringify([
    log, theme, curves.map((curve) => [curve.at, curve.superseded, curve.smooth !== null]),
  ]);

  useLayoutEffect(() => {
    const element = host.current;
    const made = new uPlot(options(now, element.clientWidth || 320, tall), dataOf(now.current.curves), element);
    plot.current = made;
    if (handle) handle.current = handleOf(made, now);
    const reset = () => now.current.onReset?.();
    made.over.addEventListener("dblclick", reset);
    return () => {
      made.destroy();
      plot.current = null;
    };
  }, [shape, tall]);

  // The same plot takes what is new: no flicker, and the crosshair stays where it is.
  useLayoutEffect(() => {
    plot.current?.setData(dataOf(curves));
  }, [curves, window.from, window.to, trimmed]);

  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => {
      const width = Math.floor(entry.contentRect.width);
      if (plot.current && width > 0 && width !== plot.current.width) plot.current.setSize({ width, height: heightOf(tall) });
    });
    observer.observe(host.current);
    return () => observer.disconnect();
  }, [tall]);

  return html`<div class="plot ${tall ? "is-tall" : ""}" ref=${host}></div>`;
}

const heightOf = (tall) => (tall ? HEIGHT * 2 : HEIGHT);

function columnsOf(curves) {
  return curves.flatMap((curve) => (curve.smooth
    ? [interrupted(curve, curve.y), interrupted(curve, curve.smooth)] : [interrupted(curve, curve.y)]));
}

/** By the clock there is nothing between two attempts; by steps they touch. */
function interrupted(curve, y) {
  if (!curve.byTime || !curve.attempts.length) return { x: curve.x, y };
  const begins = new Set(curve.attempts.map((attempt) => attempt.x));
  const found = { x: [], y: [] };
  for (let at = 0; at < curve.x.length; at++) {
    if (at > 0 && begins.has(curve.x[at])) {
      found.x.push((curve.x[at - 1] + curve.x[at]) / 2);
      found.y.push(null);
    }
    found.x.push(curve.x[at]);
    found.y.push(y[at]);
  }
  return found;
}

const dataOf = (curves) => aligned(columnsOf(curves));

function seriesOf(curves, theme) {
  const all = [{}];
  for (const curve of curves) {
    const stroke = theme.curves[curve.at % theme.curves.length];
    const base = { stroke, dash: dashOf(curve.at), points: { show: lonely }, scale: "y" };
    if (curve.superseded) all.push({ ...base, width: 1, alpha: 0.4, dash: [3, 3], points: { show: false } });
    else if (curve.smooth) all.push({ ...base, width: 1, alpha: 0.28 }, { ...base, width: LINE + 0.5, points: { show: false } });
    else all.push({ ...base, width: LINE });
  }
  return all;
}

/** Points are drawn where there are few: a line of one point would be invisible. */
function lonely(plot, series) {
  const values = plot.data[series].filter((value) => value !== undefined && value !== null);
  return values.length < 30;
}

/** The curve's own point nearest to the crosshair; none where the curve has not begun, or is over. */
function ownIndex(plot, series, closest, x) {
  const column = plot.data[series], steps = plot.data[0];
  if (series === 0 || column[closest] !== undefined) return closest;
  let before = closest, after = closest;
  while (before >= 0 && column[before] === undefined) before--;
  while (after < column.length && column[after] === undefined) after++;
  if (before < 0 || after >= column.length) return null;
  return x - steps[before] < steps[after] - x ? before : after;
}

function options(now, width, tall) {
  const { theme, log, curves } = now.current;
  const axis = {
    stroke: theme.quiet, font: theme.font, ticks: { show: false }, grid: { stroke: theme.grid, width: 1 }, gap: 6,
  };
  return {
    width, height: heightOf(tall), padding: [10, EDGE, 0, 0], legend: { show: false }, series: seriesOf(curves, theme),
    cursor: {
      sync: { key: CROSSHAIR, scales: ["x", null], setSeries: false },
      drag: { x: true, y: false, setScale: false, dist: 5 },
      points: { size: 7 }, y: false, dataIdx: (plot, series, closest, x) => ownIndex(plot, series, closest, x),
    },
    scales: {
      x: { time: false, range: () => xRange(now.current) },
      y: { distr: log ? 3 : 1, range: () => yRange(now.current) },
    },
    axes: [
      { ...axis, size: 28, space: 72, grid: { show: false }, values: (_, ticks) => ticks.map((x) => now.current.label(x)) },
      {
        ...axis, size: 60, space: 32, values: (_, ticks) => ticks.map(compact),
        ...(log ? { splits: (_, __, low, high) => decades(low, high), filter: (_, ticks) => ticks } : {}),
      },
    ],
    hooks: {
      drawClear: [(plot) => drawBounds(plot, now.current.curves, theme)],
      draw: [
        (plot) => drawAttempts(plot, now.current.curves, theme),
        (plot) => drawNonfinite(plot, now.current.curves, theme),
        (plot) => now.current.trimmed && drawOutside(plot, now.current.curves, theme),
      ],
      setCursor: [(plot) => {
        const { left } = plot.cursor;
        now.current.onCursor?.(left === null || left < 0 ? null : plot.posToVal(left, "x"));
      }],
      setSelect: [(plot) => {
        const { left, width: wide } = plot.select;
        if (wide < 5) return;
        plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        now.current.onZoom?.(plot.posToVal(left, "x"), plot.posToVal(left + wide, "x"));
      }],
    },
  };
}

/** All there is, or the window that was asked for, open at the end that grows. */
export function xRange({ curves, window }) {
  let low = Infinity, high = -Infinity;
  for (const curve of curves) {
    if (!curve.x.length) continue;
    low = Math.min(low, curve.x[0]);
    high = Math.max(high, curve.x.at(-1));
  }
  for (const [x] of curves.flatMap((curve) => curve.nonfinite)) {
    low = Math.min(low, x);
    high = Math.max(high, x);
  }
  const from = window.from ?? (Number.isFinite(low) ? low : 0);
  const to = window.to ?? (Number.isFinite(high) ? high : 1);
  return to > from ? [from, to] : [from - 0.5, from + 0.5];
}

/** What is shown of the values: all, or without the outliers. */
export function yRange({ curves, log, trimmed, window }) {
  const [from, to] = xRange({ curves, window });
  const found = (trimmed ? usual : extent)(curves, from, to, log);
  if (!found) return log ? [0.1, 10] : [0, 1];
  const [low, high] = found;
  if (log) return low === high ? [low / 2, high * 2] : [low * 0.9, high * 1.1];
  const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 1;
  return [low - room, high + room];
}

/** Ticks of a log scale. Not by uPlot's own, which never ends where the scale does not begin at a round number. */
export function decades(low, high) {
  const from = Math.floor(Math.log10(low)), to = Math.ceil(Math.log10(high));
  const every = Math.max(1, Math.ceil((to - from) / 6));
  const parts = to - from > 3 ? [1] : to - from > 1 ? [1, 3] : [1, 2, 3, 5, 7];
  const ticks = [];
  for (let power = from; power <= to; power += every) {
    for (const part of parts) ticks.push(Number(`${part}e${power}`));
  }
  return ticks.filter((tick) => tick >= low && tick <= high);
}

const POWERS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]];

/** 1.2M, 0.003, 7.5e-4: short enough for an axis. */
export function compact(value) {
  const size = Math.abs(value);
  if (size >= 1e15 || (size > 0 && size < 1e-3)) return value.toExponential(2).replace(/\.?0*e/, "e").replace("e+", "e");
  const [power, letter] = POWERS.find(([least]) => size >= least) ?? [1, ""];
  const scaled = value / (letter === "k" ? 1000 : power);
  return letter ? `${Number(scaled.toPrecision(4))}${letter}` : String(Number(value.toPrecision(6)));
}

/** For the keyboard: put the crosshair at an x, in all charts. */
function handleOf(plot, now) {
  return {
    move(x) {
      const left = plot.valToPos(x, "x");
      plot.setCursor({ left, top: plot.over.clientHeight / 2 }, true, true);
    },
    range: () => xRange(now.current),
    pixel: () => (plot.scales.x.max - plot.scales.x.min) / Math.max(1, plot.over.clientWidth),
  };
}
