// The step monitor: one continuous timeline with a short mark at every evaluation and a tall one at every epoch's end.
// The batch monitor: batches of the current epoch. Drawn in percent, so that nothing is measured and any width is sharp.
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { percent } from "../format.js";
import { count, plural } from "./words.js";

const NAME = 26;  // pixels that an epoch's name needs
const GAP = 4;  // pixels between two marks: closer ones would be a block
const THINNED = 500;  // the server tells no more marks than that
const NONE = [];

export function StepMonitor({ progress, marks, status }) {
  const { step, total } = progress;
  const evaluations = marks?.evaluations ?? [];
  const known = total !== null && total !== undefined;
  const ends = useEnds(marks, step, known);
  // Without a known end the line goes on a little beyond where it is, rounded so that it does not jitter.
  const scale = known ? Math.max(total, step) : openEnd(Math.max(step, evaluations[evaluations.length - 1] ?? 0));
  const share = scale ? Math.min(1, step / scale) : 0;
  const { passed, all } = epochCounts(ends, marks?.per_epoch, step, known ? total : null);
  const [box, width] = useWidth();
  const short = useMemo(() => path(thin(evaluations, scale, width), scale), [evaluations, scale, width]);
  const tall = useMemo(() => path(thin(ends, scale, width), scale), [ends, scale, width]);
  const names = useMemo(() => (ends.length * NAME <= width ? epochNames(ends, scale) : []), [ends, scale, width]);
  const told = evaluations.length >= THINNED ? `${count(evaluations.length)}+` : count(evaluations.length);
  const says = [
    known ? `Step ${count(step)} of ${count(total)}` : `Step ${count(step)}, the end is not known`,
    evaluations.length ? `${told} ${evaluations.length === 1 ? "evaluation" : "evaluations"}, the last at step ${count(Math.max(...evaluations.slice(-3)))}`
      : "no evaluation yet",
    all ? `${count(passed)} of ${plural(all, "epoch end")} passed` : "epochs are not counted",
  ].join("; ");
  return html`<figure class="monitor" data-monitor="steps">
    <figcaption><span class="monitor-name">Steps</span>
      <span class="monitor-value"><strong>${count(step)}</strong>${known ? ` / ${count(total)}` : " / ?"}</span>
      ${known && html`<span class="monitor-share">${percent(step / (total || 1))}</span>`}</figcaption>
    <div class="rail-box" ref=${box}>
      <svg class="rail" role="img" aria-label=${says} width="100%" height="44">
        <rect class="rail-bed ${known ? "" : "is-open"}" x="0" y="27" width="100%" height="6" rx="3" />
        <rect class="rail-done is-${status}" x="0" y="27" width="${share * 100}%" height="6" rx="3" />
        <svg x="0" y="12" width="100%" height="28" viewBox="0 0 1000 28" preserveAspectRatio="none">
          <path class="mark-tall ${tall.length < all ? "is-dense" : ""}" d=${tall.map((x) => `M${x} 2V28`).join("")} />
          <path class="mark-short" d=${short.map((x) => `M${x} 10V26`).join("")} />
        </svg>
        ${names.map(([at, name]) => html`<text key=${name} class="epoch-name" x="${at}%" y="9" text-anchor="middle">${name}</text>`)}
        <circle class="train is-${status}" cx="${share * 100}%" cy="30" r="6" />
      </svg>
    </div>
    <p class="monitor-ends" aria-hidden="true"><span>0</span><span class="legend"
      ><i class="key-short"></i>evaluation ${evaluations.length ? html`<b>${told}</b>` : ""}
      <i class="key-tall"></i>epoch end ${all ? html`<b>${count(passed)}/${count(all)}</b>` : ""}</span>
      <span>${known ? count(total) : "not known"}</span></p>
  </figure>`;
}

export function BatchMonitor({ progress, status }) {
  const { batches } = progress;
  if (!batches || batches === 1) return null;  // a loop that counts epochs alone has no batches
  const { epoch, batch } = reached(progress);
  const share = Math.min(1, batch / batches);
  return html`<figure class="monitor is-batches" data-monitor="batches">
    <figcaption><span class="monitor-name">Batches</span><span class="epoch-chip">E${epoch}</span>
      <span class="monitor-value"><strong>${count(batch)}</strong>/${count(batches)}</span></figcaption>
    <svg class="rail" role="img" width="100%" height="10"
      aria-label="Epoch ${epoch}: batch ${count(batch)} of ${count(batches)}">
      <rect class="rail-bed" x="0" y="2" width="100%" height="6" rx="3" />
      <rect class="rail-done is-${status}" x="0" y="2" width="${share * 100}%" height="6" rx="3" />
    </svg>
  </figure>`;
}

/** The program counts on behind the last batch, to an epoch that never begins: then it is the last one, and full. */
function reached({ step, total, epoch, batch, batches }) {
  return total && step >= total && batch === 0 && epoch > 0 ? { epoch: epoch - 1, batch: batches } : { epoch, batch };
}

/** Where epochs end. The server tells it as far as the run's end, and where that is not known, as far as the run had come. */
function useEnds(marks, step, known) {
  const told = marks?.epochs ?? NONE;
  const each = marks?.per_epoch;
  const last = told[told.length - 1] ?? 0;
  const more = known || !each ? 0 : Math.max(0, Math.floor((step - last) / each));
  return useMemo(() => {
    const every = Math.ceil(more / THINNED);
    return more ? [...told, ...Array.from({ length: Math.floor(more / every) }, (_, at) => last + (at + 1) * every * each)] : told;
  }, [told, each, more]);
}

function path(steps, scale) {
  return scale ? steps.map((step) => Math.round((step / scale) * 99_800 + 100) / 100) : [];
}

/** How many epochs have ended, and how many there will be: the marks may be thinned, these are not. */
function epochCounts(ends, perEpoch, step, total) {
  if (perEpoch && ends.length >= THINNED - 50) return { passed: Math.floor(step / perEpoch), all: Math.floor((total ?? step) / perEpoch) };
  return { passed: ends.filter((end) => end <= step).length, all: ends.length };
}

/** Those that are far enough from the one before: of regular marks the rest is as regular. */
function thin(steps, scale, width) {
  const apart = (scale * GAP) / Math.max(1, width);
  let last = -Infinity;
  return [...steps].sort((one, other) => one - other).filter((step) => {
    if (step > scale || step - last < apart) return false;
    last = step;
    return true;
  });
}

function useWidth() {
  const box = useRef(null);
  const [width, setWidth] = useState(600);
  useEffect(() => {
    const watch = new ResizeObserver(([entry]) => setWidth(Math.round(entry.contentRect.width)));
    watch.observe(box.current);
    return () => watch.disconnect();
  }, []);
  return [box, width];
}

function epochNames(ends, scale) {
  if (!scale || ends.length < 1) return [];
  const inside = ends.filter((end) => end <= scale);
  return inside.map((end, at) => [((((at ? inside[at - 1] : 0) + end) / 2 / scale) * 100).toFixed(2), `E${at}`]);
}

/** 1, 2 or 5 times a power of ten, and at least a tenth beyond. */
function openEnd(step) {
  if (step <= 0) return 0;
  const wanted = step * 1.1;
  const power = 10 ** Math.floor(Math.log10(wanted));
  return [1, 1.5, 2, 3, 5, 7.5, 10].map((n) => n * power).find((end) => end >= wanted);
}
