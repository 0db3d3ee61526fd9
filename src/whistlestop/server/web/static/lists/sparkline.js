// A loss in the size of a word: where it comes from and where it goes. One that ends in no number ends in a cross.
import { html } from "../lib.js";
import { number } from "../format.js";

const WIDTH = 80;
const HEIGHT = 22;
const CROSS = 3;

export function Sparkline({ line, label }) {
  const all = (line?.y ?? []).map((y, at) => [line.x[at], y]);
  const points = all.filter(([, y]) => y !== null && Number.isFinite(y));
  const odd = all.length > 0 && all.at(-1) !== points.at(-1);
  if (points.length < 2 && !odd) return null;
  const ys = points.map(([, y]) => y);
  const [left, right] = [all[0][0], all.at(-1)[0]];
  const [low, high] = [Math.min(...ys), Math.max(...ys)];
  const room = odd ? CROSS + 1 : 2;
  const across = (x) => (right > left ? 2 + ((x - left) / (right - left)) * (WIDTH - 2 - room) : WIDTH / 2);
  const down = (y) => (high > low ? HEIGHT - 3 - ((y - low) / (high - low)) * (HEIGHT - 6) : HEIGHT / 2);
  const place = ([x, y]) => [across(x), down(y)].map((value) => value.toFixed(1)).join(" ");
  const last = points.length ? place(points.at(-1)).split(" ") : null;
  const words = points.length ? `from ${number(points[0][1])} to ${number(points.at(-1)[1])}${odd ? ", then not finite" : ""}` : "not finite";
  return html`<svg class="sparkline" width=${WIDTH} height=${HEIGHT} viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img"
    aria-label=${`${line.name} of ${label}: ${words}`}>
    ${points.length > 1 && html`<path d=${`M${points.map(place).join("L")}`} />`}
    ${odd ? html`<${Cross} x=${across(right)} y=${last ? Number(last[1]) : HEIGHT / 2} from=${last ? Number(last[0]) : 2} />`
      : html`<circle cx=${last[0]} cy=${last[1]} r="2" />`}
  </svg>`;
}

function Cross({ x, y, from }) {
  return html`<line class="is-odd is-way" x1=${from} x2=${x - CROSS} y1=${y} y2=${y} />
    <line class="is-odd" x1=${x - CROSS} x2=${x + CROSS} y1=${y - CROSS} y2=${y + CROSS} />
    <line class="is-odd" x1=${x - CROSS} x2=${x + CROSS} y1=${y + CROSS} y2=${y - CROSS} />`;
}
