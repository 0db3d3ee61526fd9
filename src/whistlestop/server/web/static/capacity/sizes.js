// How large a pool was over time, as steps in the size of a word.
import { html } from "../lib.js";
import { now } from "../api.js";
import { ago } from "../format.js";
import { slotsWord } from "./words.js";

const WIDTH = 160;
const HEIGHT = 28;
const DAYS = 7;

export function Sizes({ pool }) {
  const end = now() / 1000;
  const begin = end - DAYS * 86400;
  const before = pool.sizes.filter(([at]) => at <= begin).at(-1);
  const inside = pool.sizes.filter(([at]) => at > begin);
  if (inside.length === 0 || (inside.length === 1 && !before)) {
    const since = inside[0]?.[0] ?? before?.[0];
    return html`<span>${slotsWord(pool.slots)}${since ? `, set ${ago(new Date(since * 1000).toISOString(), now())}` : ""}</span>`;
  }
  const first = before ? begin : inside[0][0];
  const points = before ? [[begin, before[1]], ...inside] : inside;
  const most = Math.max(1, ...points.map(([, slots]) => slots));
  const x = (at) => (((at - first) / Math.max(1, end - first)) * WIDTH).toFixed(1);
  const y = (slots) => (HEIGHT - 1 - (slots / most) * (HEIGHT - 4)).toFixed(1);
  const path = points.map(([at, slots], index) => `${index ? `H${x(at)}V` : `M${x(at)} `}${y(slots)}`).join("") + `H${WIDTH}`;
  const changes = inside.length - (before ? 0 : 1);
  return html`<span class="sizes"><svg width=${WIDTH} height=${HEIGHT} viewBox="0 0 ${WIDTH} ${HEIGHT}" role="img"
    aria-label=${`From ${points[0][1]} to ${slotsWord(pool.slots)} in ${changes} change${changes === 1 ? "" : "s"}, ${most} at most`}>
    <path class="sizes-area" d=${`${path}V${HEIGHT}H0Z`} /><path class="sizes-line" d=${path} /></svg>
    <span class="faint small nowrap">${changes.toLocaleString("en-US")} change${changes === 1 ? "" : "s"}, the first ${ago(new Date(inside[before ? 0 : 1][0] * 1000).toISOString(), now())}</span></span>`;
}
