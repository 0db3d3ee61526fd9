// Credits day by day, stacked by what the time was used for. The same is there as a table.
import { html, useLayoutEffect, useRef, useState } from "../lib.js";
import { credits } from "../format.js";
import { KINDS, kindWord } from "./words.js";

const HEIGHT = 180;
const FOOT = 20;
const LEFT = 48;
const RIGHT = 18;  // half a date
const DATE = 72;  // pixels for each

export function Days({ days }) {
  const [chosen, setChosen] = useState(null);
  const [box, wide] = useWidth(960);
  const most = niceMost(Math.max(...days.map((day) => day.credits), 0));
  const room = (wide - LEFT - RIGHT) / Math.max(1, days.length);
  const used = KINDS.filter(([kind]) => days.some((day) => day.kinds[kind] > 0));
  const height = (value) => (value / most) * (HEIGHT - FOOT - 8);
  const total = days.reduce((sum, day) => sum + day.credits, 0);
  const marked = chosen === null ? null : days[chosen];
  return html`<figure class="days" ref=${box}>
    <svg width=${wide} height=${HEIGHT} viewBox="0 0 ${wide} ${HEIGHT}" role="img" aria-label=${`Credits by day: ${credits(total)} in ${days.length} days, ${credits(Math.max(...days.map((day) => day.credits), 0))} on the dearest`}
      onMouseLeave=${() => setChosen(null)}>
      ${[0, 0.5, 1].map((part) => html`<g key=${part}><line class="days-grid" x1=${LEFT} x2=${wide - RIGHT} y1=${HEIGHT - FOOT - height(most * part)} y2=${HEIGHT - FOOT - height(most * part)} />
        <text class="days-text" x=${LEFT - 8} y=${HEIGHT - FOOT - height(most * part) + 4} text-anchor="end">${short(most * part)}</text></g>`)}
      ${days.map((day, at) => {
        let below = HEIGHT - FOOT;
        const thick = Math.max(1, Math.min(48, room - (room > 6 ? 3 : 1)));
        const x = LEFT + at * room + (room - thick) / 2;
        return html`<g key=${day.day} class=${chosen === at ? "is-chosen" : ""} onMouseEnter=${() => setChosen(at)}>
          <rect class="days-hit" x=${LEFT + at * room} y="0" width=${room} height=${HEIGHT - FOOT} />
          ${used.map(([kind]) => {
            const tall = height(day.kinds[kind] ?? 0);
            if (tall <= 0) return null;
            below -= tall;
            return html`<rect key=${kind} class="is-kind-${kind}" x=${x.toFixed(1)} y=${below.toFixed(1)} width=${thick.toFixed(1)} height=${Math.max(0.5, tall).toFixed(1)} />`;
          })}
          ${shows(at, days.length, room) && html`<text class="days-text" x=${LEFT + at * room + room / 2} y=${HEIGHT - 4} text-anchor="middle">${day.day.slice(5)}</text>`}
        </g>`;
      })}
    </svg>
    <figcaption class="days-foot"><ul class="days-legend">${used.map(([kind]) => html`<li key=${kind}><span class="days-mark is-kind-${kind}"></span>${kindWord(kind)}
      <span class="number muted">${credits(sumOf(marked ? [marked] : days, kind))}</span></li>`)}</ul>
      <span class="push muted small number">${marked ? `${marked.day}: ${credits(marked.credits)}` : `all days: ${credits(total)}`}</span></figcaption>
    <details class="days-table"><summary>As a table</summary><div class="scroll" tabindex="0" role="region" aria-label="Credits by day"><table class="table">
      <thead><tr><th scope="col">Day</th>${used.map(([kind]) => html`<th key=${kind} scope="col" class="is-number">${kindWord(kind)}</th>`)}<th scope="col" class="is-number">credits</th></tr></thead>
      <tbody>${[...days].reverse().filter((day) => day.credits > 0).map((day) => html`<tr key=${day.day}><th scope="row">${day.day}</th>${used.map(([kind]) => html`<td key=${kind}
        class="is-number">${day.kinds[kind] ? credits(day.kinds[kind]) : "–"}</td>`)}<td class="is-number">${credits(day.credits)}</td></tr>`)}</tbody></table></div></details>
  </figure>`;
}

const sumOf = (days, kind) => days.reduce((sum, day) => sum + (day.kinds[kind] ?? 0), 0);

/** A round number above the largest. */
function niceMost(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 4, 5, 10].map((step) => step * power).find((each) => each >= value) ?? value;
}

function short(value) {
  if (value >= 1000) return `${(value / 1000).toLocaleString("en-US", { maximumFractionDigits: 1 })}k`;
  return value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
}

/** As many dates as can be read, the last one always. */
function shows(at, count, room) {
  return (count - 1 - at) % Math.max(1, Math.ceil(DATE / room)) === 0;
}

/** A chart that is scaled has letters that nobody can read: it is drawn as wide as it is. */
function useWidth(first) {
  const box = useRef(null);
  const [width, setWidth] = useState(first);
  useLayoutEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.max(240, Math.floor(entry.contentRect.width))));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}
