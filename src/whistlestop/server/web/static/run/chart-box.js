// One chart as a figure: its name, its values in words, the plot or a table of it, and the keyboard.
import { html, useCallback, useEffect, useId, useMemo, useRef, useState } from "../lib.js";
import { number } from "../format.js";
import { Icon } from "../ui/index.js";
import { Plot } from "./chart.js";
import { curvesOf, nearest, summary } from "./chart-lines.js";
import { ChartTable } from "./chart-table.js";
import { dashOf } from "./chart-theme.js";

const AHEAD = "300px";  // drawn a little before they are scrolled to

/** `axis`: {id, label(x), word(x)}; `settings`: {smoothing, log, superseded}; `runs`: [{id, title}]. */
export function ChartBox({ store, summary: about, axis, view, settings, theme, runs, several, onZoom, onReset }) {
  const box = useRef(null);
  const [inView, width] = useInView(box);
  const [told, setFound] = useState(null);
  const [asTable, setAsTable] = useState(false);
  const [large, setLarge] = useState(false);
  const id = useId();

  useEffect(() => {
    if (!inView || !width) return undefined;
    return store.show(about.phase, about.name, width, setFound);
  }, [store, inView, width, about.phase, about.name]);

  // Steps must not be drawn as seconds while the answer to a new axis is on its way.
  const found = told?.view.axis === view.kind ? told : null;
  const curves = useMemo(() => (found ? curvesOf(found.runs, settings, found.view.axis === "time") : []), [found, settings]);
  const own = curves.find((curve) => curve.at === 0 && !curve.superseded);
  const says = useMemo(() => (own ? summary(own) : null), [own]);
  // A log scale has no place for zero and below.
  const log = settings.log && curves.some((curve) => curve.high.some((value) => value > 0));

  return html`<figure class="chart card ${large ? "is-large" : ""}" ref=${box} aria-labelledby="${id}-name">
    <figcaption>
      <div class="chart-head">
        <h3 id="${id}-name" class="chart-name" title=${about.name}>${about.name}</h3>
        ${several && html`<span class="chart-phase">${about.phase}</span>`}
        <span class="push chart-buttons">
          <button type="button" class="button is-quiet is-icon is-small" aria-pressed=${asTable ? "true" : "false"}
            aria-label="Show ${about.name} as a table" title="As a table" onClick=${() => setAsTable(!asTable)}
          ><${Icon} name="queue" /></button>
          <button type="button" class="button is-quiet is-icon is-small" aria-pressed=${large ? "true" : "false"}
            aria-label="Show ${about.name} large" title="Large" onClick=${() => setLarge(!large)}
          ><${Icon} name="square" /></button>
        </span>
      </div>
      <${Values} says=${says} about=${about} axis=${axis} />
    </figcaption>
    ${!found && html`<${Room} large=${large} runs=${runs} />`}
    ${found?.problem && html`<p class="chart-trouble">${found.problem.detail}</p>`}
    ${found && asTable && html`<${ChartTable} curves=${curves} axis=${axis} runs=${runs} name=${about.name} />`}
    ${found && !asTable && (inView
      ? html`<${Live} curves=${curves} view=${view} log=${log} theme=${theme} axis=${axis} runs=${runs}
          name=${about.name} says=${says} onZoom=${onZoom} onReset=${onReset} large=${large} />`
      : html`<${Room} large=${large} runs=${runs} />`)}
    ${settings.log && !log && found && html`<p class="chart-note">Nothing above zero: shown on a linear scale.</p>`}
  </figure>`;
}

/** As high as the plot and its legend: the page must not move when a chart comes into view. */
function Room({ large, runs }) {
  return html`<div aria-hidden="true" style=${{ height: `${(large ? 400 : 200) + 20 * runs.length}px` }}></div>`;
}

function Values({ says, about, axis }) {
  const odd = says?.nonfinite?.[0];
  const words = { nan: "NaN", inf: "+∞", "-inf": "−∞" };
  const last = says ? says.last : about.last;
  return html`<dl class="chart-values">
    <div class="is-last"><dt>last</dt><dd>${said(last)}</dd></div>
    <div><dt>min</dt><dd>${said(says ? says.low : about.low)}</dd></div>
    <div><dt>max</dt><dd>${said(says ? says.high : about.high)}</dd></div>
    ${odd && html`<div class="is-bad"><dt class="visually-hidden">not a number</dt>
      <dd>${words[odd[1]]} at ${axis.word(odd[0])}</dd></div>`}
  </dl>`;
}

const said = (value) => (value === null || value === undefined ? "–" : number(value));

/** The plot with its legend at the crosshair, and the keys that move it. */
function Live({ curves, view, log, theme, axis, runs, name, says, onZoom, onReset, large }) {
  const handle = useRef(null);
  const [cursor, setCursor] = useState(null);
  const [spoken, setSpoken] = useState("");
  const frame = useRef(0);
  const own = curves.find((curve) => curve.at === 0 && !curve.superseded) ?? curves[0];

  const follow = useCallback((x) => {
    cancelAnimationFrame(frame.current);
    frame.current = requestAnimationFrame(() => setCursor(x));
  }, []);
  useEffect(() => () => cancelAnimationFrame(frame.current), []);

  const key = (event) => {
    if (!own || !handle.current || event.ctrlKey || event.metaKey || event.altKey) return;
    const [from, to] = handle.current.range();
    const here = cursor ?? to;
    const at = nearest(own.x, here);
    const steps = event.shiftKey ? 10 : 1;
    const zoom = (factor) => onZoom(here - (here - from) * factor, here + (to - here) * factor);
    const actions = {
      ArrowLeft: () => go(Math.max(0, at - steps)), ArrowRight: () => go(Math.min(own.x.length - 1, at + steps)),
      Home: () => go(0), End: () => go(own.x.length - 1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: onReset, Escape: onReset,
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  };
  const go = (index) => {
    const x = own.x[index];
    handle.current.move(x);
    setCursor(x);
    setSpoken(`${axis.word(x)}: ${said(own.y[index])}`);
  };
  const text = says ? `${name}: ${own?.x.length ?? 0} points, last ${said(says.last)}, lowest ${said(says.low)}, `
    + `highest ${said(says.high)}. Arrow keys move the crosshair, plus and minus zoom, 0 shows all.` : name;
  return html`<div class="plot-host" tabindex="0" role="group" aria-roledescription="chart" aria-label=${text}
      onKeyDown=${key}>
    <${Plot} curves=${curves} window=${view} log=${log} theme=${theme} label=${axis.label} onCursor=${follow}
      onZoom=${onZoom} onReset=${onReset} handle=${handle} tall=${large} />
    <p class="visually-hidden" aria-live="polite">${spoken}</p>
    <${Legend} curves=${curves} cursor=${cursor} axis=${axis} runs=${runs} theme=${theme} />
  </div>`;
}

/** A line for each run, with what was superseded at that place: its height does not change under the pointer. */
function Legend({ curves, cursor, axis, runs, theme }) {
  const compared = runs.length > 1;
  const tails = cursor === null ? []
    : curves.filter((curve) => curve.superseded && cursor >= curve.x[0] && cursor <= curve.x.at(-1));
  return html`<div class="chart-legend" aria-hidden="true">
    ${curves.filter((curve) => !curve.superseded).map((curve, row) => {
      const at = cursor === null ? -1 : nearest(curve.x, cursor);
      return html`<div class="legend-row" key=${curve.run}>
        ${(compared || cursor !== null) && html`<${Sample} curve=${curve} theme=${theme} />`}
        ${compared && html`<span class="legend-name">${runs[curve.at]?.title}</span>`}
        ${at >= 0 && html`<span class="legend-value">${said(curve.y[at])}</span>`}
        ${at >= 0 && curve.smooth && html`<span class="legend-more">smoothed ${said(curve.smooth[at])}</span>`}
        ${at >= 0 && curve.bounds && curve.low[at] !== curve.high[at]
          && html`<span class="legend-more">${said(curve.low[at])} … ${said(curve.high[at])}</span>`}
        ${tails.filter((tail) => tail.at === curve.at).map((tail) => html`<${Sample} curve=${tail} theme=${theme} />
          <span class="legend-more">${said(tail.y[nearest(tail.x, cursor)])} attempt ${tail.attempt}, superseded</span>`)}
        ${row === 0 && cursor !== null && html`<span class="legend-x">${axis.word(cursor)}</span>`}
      </div>`;
    })}
  </div>`;
}

function Sample({ curve, theme }) {
  return html`<svg class="legend-line" width="18" height="8"><line x1="0" x2="18" y1="4" y2="4" stroke-width="2"
    stroke=${theme.curves[curve.at]} stroke-dasharray=${(curve.superseded ? [3, 3] : dashOf(curve.at)).join(" ")}
    opacity=${curve.superseded ? 0.55 : 1} /></svg>`;
}

/** Whether the box is on the screen or near it, and its width in pixels, in steps: a resize is not a new question. */
function useInView(box) {
  const [state, setState] = useState([false, 0]);
  useEffect(() => {
    let visible = false, width = 0;
    const tell = () => setState((before) => (before[0] === visible && before[1] === width ? before : [visible, width]));
    const seen = new IntersectionObserver((entries) => {
      visible = entries.at(-1).isIntersecting;
      tell();
    }, { rootMargin: AHEAD });
    const sized = new ResizeObserver(([entry]) => {
      width = Math.min(4000, Math.max(100, Math.ceil(entry.contentRect.width / 100) * 100));
      tell();
    });
    seen.observe(box.current);
    sized.observe(box.current);
    return () => {
      seen.disconnect();
      sized.disconnect();
    };
  }, []);
  return state;
}
