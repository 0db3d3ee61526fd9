// A loss in the size of a word: where it comes from and where it goes.
import { html } from "../lib.js";
import { number } from "../format.js";

const WIDTH = 80;
const HEIGHT = 22;

export function Sparkline({ line, label }) {
  const points = (line?.y ?? []).map((y, at) => [line.x[at], y]).filter(([, y]) => y !== null && Number.isFinite(y));
  if (points.length < 2) return null;
  const xs = points.map(([x]) => x);
  const ys = points.map(([, y]) => y);
  const [left, right] = [Math.min(...xs), Math.max(...xs)];
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const place = ([x, y]) => [
    right > left ? 2 + ((x - left) / (right - left)) * (WIDTH - 4) : WIDTH / 2,
    high > low ? HEIGHT - 3 - ((y - low) / (high - low)) * (HEIGHT - 6) : HEIGHT / 2,
  ].map((value) => value.toFixed(1)).join(" ");
  const last = place(points[points.length - 1]).split(" ");
  return html`<svg class="sparkline" width=${WIDTH} height=${HEIGHT} viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img"
    aria-label=${`${line.name} of ${label}: from ${number(points[0][1])} to ${number(points[points.length - 1][1])}`}>
    <path d=${`M${points.map(place).join("L")}`} /><circle cx=${last[0]} cy=${last[1]} r="2" />
  </svg>`;
}
