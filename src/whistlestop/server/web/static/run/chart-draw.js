// What uPlot does not draw by itself: bounds of buckets, where an attempt resumed, what is no number or lies outside.
import { kindsWord } from "./chart-odd.js";

/** Every bucket's lowest to highest, so that a spike of one step is seen at any zoom. */
export function drawBounds(plot, curves, theme) {
  const { ctx } = plot;
  inside(plot, () => {
    for (const curve of curves) {
      if (!curve.bounds) continue;
      const positive = plot.scales.y.distr === 3;
      const y = (value) => plot.valToPos(positive ? Math.max(value, plot.scales.y.min) : value, "y", true);
      ctx.strokeStyle = theme.curves[curve.at];
      ctx.globalAlpha = curve.superseded ? 0.16 : 0.45;
      ctx.setLineDash([]);
      ctx.lineWidth = Math.max(1.5 * devicePixelRatio, barWidth(plot, curve));
      ctx.beginPath();
      for (let at = 0; at < curve.x.length; at++) {
        const low = curve.low[at], high = curve.high[at];
        if (low === null || high === null || low === high || (positive && high <= 0)) continue;
        if (curve.x[at] < plot.scales.x.min || curve.x[at] > plot.scales.x.max) continue;
        const x = Math.round(plot.valToPos(curve.x[at], "x", true));
        ctx.moveTo(x, y(high) - 0.5);
        ctx.lineTo(x, y(low) + 0.5);
      }
      ctx.stroke();
    }
  });
}

/** A hairline where a later attempt went on. */
export function drawAttempts(plot, curves, theme) {
  const { ctx } = plot;
  inside(plot, () => {
    ctx.strokeStyle = theme.quiet;
    ctx.globalAlpha = 0.6;
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([1 * devicePixelRatio, 3 * devicePixelRatio]);
    for (const { x } of curves.filter((curve) => curve.at === 0).flatMap((curve) => curve.attempts)) {
      const at = Math.round(plot.valToPos(x, "x", true)) + 0.5;
      ctx.beginPath();
      ctx.moveTo(at, plot.bbox.top);
      ctx.lineTo(at, plot.bbox.top + plot.bbox.height);
      ctx.stroke();
    }
  });
}

/** A shade from the first to the last of them with one word at the upper edge: a NaN has no height, and must not go unseen. */
export function drawNonfinite(plot, curves, theme) {
  const { ctx, bbox } = plot;
  const size = 5 * devicePixelRatio, { min, max } = plot.scales.x;
  const spans = curves.flatMap((curve) => curve.spans).filter((span) => span.to >= min && span.from <= max)
    .sort((a, b) => a.from - b.from)
    .map((span) => ({ ...span, left: plot.valToPos(Math.max(span.from, min), "x", true), right: plot.valToPos(Math.min(span.to, max), "x", true) }));
  inside(plot, () => {
    ctx.setLineDash([]);  // uPlot leaves what its last curve needed, and what its axes did
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    ctx.font = `600 ${11 * devicePixelRatio}px ${theme.font.replace(/^\S+ /, "")}`;
    ctx.strokeStyle = ctx.fillStyle = theme.bad;
    ctx.lineWidth = devicePixelRatio;
    for (const { left, right } of spans) {
      ctx.globalAlpha = 0.12;
      ctx.fillRect(left, bbox.top, right - left, bbox.height);
      ctx.globalAlpha = 0.45;
      ctx.beginPath();
      ctx.moveTo(left, bbox.top);
      ctx.lineTo(left, bbox.top + bbox.height);
      ctx.stroke();
      ctx.globalAlpha = 1;
      triangle(ctx, left, bbox.top, size);
    }
    // Words last, on paper: they must not be crossed by the marks of others, nor cover each other.
    let free = -Infinity;
    for (const { left, kinds } of spans) {
      const word = kindsWord(kinds), width = ctx.measureText(word).width;
      const begin = Math.min(left + size * 1.4, bbox.left + bbox.width - width - size);
      if (begin < free) continue;
      ctx.fillStyle = theme.paper;
      ctx.fillRect(begin - 2 * devicePixelRatio, bbox.top, width + 4 * devicePixelRatio, 14 * devicePixelRatio);
      ctx.fillStyle = theme.bad;
      ctx.fillText(word, begin, bbox.top + 1);
      free = begin + width + size;
    }
  });
}

/** An arrow at the edge where a value lies beyond it. */
export function drawOutside(plot, curves, theme) {
  const { ctx, bbox } = plot;
  const size = 4 * devicePixelRatio;
  const { min, max } = plot.scales.y;
  inside(plot, () => {
    for (const curve of curves.filter((one) => !one.superseded)) {
      ctx.fillStyle = theme.curves[curve.at];
      for (const [values, beyond, edge, towards] of [
        [curve.high, (value) => value > max, bbox.top, -1], [curve.low, (value) => value < min, bbox.top + bbox.height, 1],
      ]) {
        let free = -Infinity;
        for (let at = 0; at < curve.x.length; at++) {
          if (values[at] === null || !beyond(values[at])) continue;
          const x = plot.valToPos(curve.x[at], "x", true);
          if (x < free) continue;
          triangle(ctx, x, edge - towards * size * 1.4, size, towards);
          free = x + 2 * size;
        }
      }
    }
  });
}

/** With its flat side at `y`, pointing down (1) or up (-1). */
function triangle(ctx, x, y, size, towards = 1) {
  ctx.beginPath();
  ctx.moveTo(x - size, y);
  ctx.lineTo(x + size, y);
  ctx.lineTo(x, y + towards * size * 1.4);
  ctx.fill();
}

function barWidth(plot, curve) {
  if (curve.x.length < 2) return devicePixelRatio;
  const left = plot.valToPos(curve.x[0], "x", true), right = plot.valToPos(curve.x.at(-1), "x", true);
  return Math.min(4 * devicePixelRatio, (right - left) / (curve.x.length - 1));
}

function inside(plot, draw) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  draw();
  ctx.restore();
}
