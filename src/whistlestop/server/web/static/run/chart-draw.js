// What uPlot does not draw by itself: bounds of buckets, where an attempt resumed, values that are no numbers.

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

const WORDS = { nan: "NaN", inf: "+∞", "-inf": "−∞" };

/** A mark with a word at the upper edge: a NaN has no height, and must not go unseen. */
export function drawNonfinite(plot, curves, theme) {
  const { ctx } = plot;
  const size = 5 * devicePixelRatio;
  inside(plot, () => {
    ctx.font = `600 ${11 * devicePixelRatio}px ${theme.font.replace(/^\S+ /, "")}`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";  // uPlot leaves what its axes needed
    let free = -Infinity;
    const marks = curves.filter((curve) => !curve.superseded).flatMap((curve) => curve.nonfinite);
    for (const [value, kind] of marks.sort((a, b) => a[0] - b[0])) {
      if (value < plot.scales.x.min || value > plot.scales.x.max) continue;
      const x = plot.valToPos(value, "x", true), top = plot.bbox.top;
      ctx.globalAlpha = 0.35;
      ctx.strokeStyle = ctx.fillStyle = theme.bad;
      ctx.lineWidth = devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x, top);
      ctx.lineTo(x, top + plot.bbox.height);
      ctx.stroke();
      ctx.globalAlpha = 1;
      ctx.beginPath();
      ctx.moveTo(x - size, top);
      ctx.lineTo(x + size, top);
      ctx.lineTo(x, top + size * 1.4);
      ctx.fill();
      const word = WORDS[kind] ?? kind, width = ctx.measureText(word).width;
      const left = Math.min(x + size * 1.4, plot.bbox.left + plot.bbox.width - width - 2);
      if (left < free) continue;
      ctx.fillText(word, left, top + 1);
      free = left + width + size;
    }
  });
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
