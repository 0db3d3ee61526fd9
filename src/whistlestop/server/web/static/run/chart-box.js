// One chart as a figure: its name, its values in words, the plot or a table of it, and the keyboard.
import { html, useCallback, useEffect, useId, useMemo, useRef, useState } from "../lib.js";
import { number } from "../format.js";
import { Icon } from "../ui/index.js";
import { Plot, xRange, yRange } from "./chart.js";
import { curvesOf, nearest, nearestOn, outside, summary, zoomedBy } from "./chart-lines.js";
import { oddWord, oddWords } from "./chart-odd.js";
import { ChartTable } from "./chart-table.js";
import { dashOf } from "./chart-theme.js";

const AHEAD = "300px";  // drawn a little before they are scrolled to

/** `axis`: {id, label(x), word(x)}; `settings`: {smoothing, log, superseded, trimmed}; `runs`: [{id, title, zero}]. */
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
  // The list knows how it ends even where the end shares a bucket with numbers; what has grown since is in the lines.
  const endsOdd = about.last === null && view.to === null;
  const curves = useMemo(
    () => (found ? curvesOf(found.runs, settings, found.view.axis === "time", endsOdd) : []), [found, settings, endsOdd],
  );
  const own = curves.find((curve) => curve.at === 0 && !curve.superseded);
  const says = useMemo(() => (own ? captionOf(own, found, about, view, axis) : null), [own, about, view, axis]);
  // A log scale has no place for zero and below.
  const log = settings.log && curves.some((curve) => curve.high.some((value) => value > 0));

  const beyond = useMemo(() => {
    const shown = { curves, log, trimmed: settings.trimmed, window: view };
    return settings.trimmed && curves.length ? outside(curves, xRange(shown), yRange(shown), log) : null;
  }, [curves, log, settings.trimmed, view]);

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
      <${Values} says=${says} about=${about} />
    </figcaption>
    ${!found && html`<${Room} large=${large} runs=${runs} />`}
    ${found?.problem && html`<p class="chart-trouble">${found.problem.detail}</p>`}
    ${found?.runs.map((one, at) => one.problem && html`<p class="chart-trouble" key=${one.run}
      >${runs[at]?.title} can't be read: ${one.problem.detail}</p>`)}
    ${found && asTable && html`<${ChartTable} curves=${curves} axis=${axis} runs=${runs} name=${about.name} />`}
    ${found && !asTable && (inView
      ? html`<${Live} curves=${curves} view=${view} log=${log} trimmed=${settings.trimmed} about=${about} theme=${theme} axis=${axis} runs=${runs}
          name=${about.name} says=${says} onZoom=${onZoom} onReset=${onReset} large=${large} />`
      : html`<${Room} large=${large} runs=${runs} />`)}
    ${beyond && html`<p class="chart-note">${beyondWords(beyond)}</p>`}
    ${settings.log && !log && found && html`<p class="chart-note">Nothing above zero: shown on a linear scale.</p>`}
  </figure>`;
}

/** As high as the plot and its legend: the page must not move when a chart comes into view. */
function Room({ large, runs }) {
  return html`<div aria-hidden="true" style=${{ height: `${(large ? 400 : 200) + 20 * runs.length}px` }}></div>`;
}

/** What is said of the run's own curve, as far as it is known. */
function captionOf(own, found, about, view, axis) {
  const says = summary(own);
  const whole = view.from === null && view.to === null;
  const alone = own.spans.length === 1 && found.runs[0].lines.length === 1;
  const count = says.count ?? (whole && alone ? about.nonfinite : null);
  const known = { count, cut: view.from !== null, first: own.x[0], word: axis.word };
  return { ...says, trouble: oddWords(own.spans, known) };
}

function beyondWords({ above, below, lowest, highest }) {
  const parts = [above && `${above} above, up to ${number(highest)}`, below && `${below} below, down to ${number(lowest)}`];
  return `Not shown: ${parts.filter(Boolean).join("; ")}.`;
}

function Values({ says, about }) {
  const last = says ? says.odd ?? said(says.last) : said(about.last);
  return html`<dl class="chart-values">
    <div class=${says?.odd ? "is-bad" : "is-last"}><dt>last</dt><dd>${last}</dd></div>
    <div><dt>min</dt><dd>${said(says ? says.low : about.low)}</dd></div>
    <div><dt>max</dt><dd>${said(says ? says.high : about.high)}</dd></div>
    ${says?.trouble && html`<div class="is-bad is-trouble"><dt class="visually-hidden">not a number</dt>
      <dd>${says.trouble}</dd></div>`}
  </dl>`;
}

const said = (value) => (value === null || value === undefined ? "–" : number(value));
const saidAt = (curve, at) => (curve.y[at] === null ? oddWord(curve.spans, curve.x[at]) : said(curve.y[at]));

/** The plot with its legend at the crosshair, and the keys that move it. */
function Live({ curves, view, log, trimmed, about, theme, axis, runs, name, says, onZoom, onReset, large }) {
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
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (["0", "Escape"].includes(event.key)) {
      event.preventDefault();
      onReset();
      return;
    }
    if (!own || !handle.current) return;
    const [from, to] = handle.current.range();
    const at = nearest(own.x, cursor ?? to);
    const steps = event.shiftKey ? 10 : 1;
    const zoom = (factor) => {
      const inside = cursor !== null && cursor >= from && cursor <= to;
      const least = axis.id === "time" ? 0 : 2;
      const [begin, end] = zoomedBy(factor, inside ? cursor : (from + to) / 2, [from, to], wholeOf(own, about, axis, runs[0]), least);
      if (begin === null && end === null) onReset();
      else onZoom(begin, end);
    };
    const actions = {
      ArrowLeft: () => go(Math.max(0, at - steps)), ArrowRight: () => go(Math.min(own.x.length - 1, at + steps)),
      Home: () => go(0), End: () => go(own.x.length - 1),
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2),
    };
    if (!actions[event.key]) return;
    event.preventDefault();
    actions[event.key]();
  };
  const go = (index) => {
    const x = own.x[index];
    handle.current.move(x);
    setCursor(x);
    setSpoken(`${axis.word(x)}: ${saidAt(own, index)}`);
  };
  const text = says ? `${name}: ${own?.x.length ?? 0} points, last ${says.odd ?? said(says.last)}, lowest ${said(says.low)}, `
    + `highest ${said(says.high)}. Arrow keys move the crosshair, plus and minus zoom, 0 shows all.` : name;
  return html`<div class="plot-host" tabindex="0" role="group" aria-roledescription="chart" aria-label=${text}
      onKeyDown=${key}>
    <${Plot} curves=${curves} window=${view} log=${log} trimmed=${trimmed} theme=${theme} label=${axis.label} onCursor=${follow}
      onZoom=${onZoom} onReset=${onReset} handle=${handle} tall=${large} />
    <p class="visually-hidden" aria-live="polite">${spoken}</p>
    <${Legend} curves=${curves} cursor=${cursor} axis=${axis} runs=${runs} theme=${theme} />
  </div>`;
}

/** From where to where the run's own curve goes, beyond the window, too. */
function wholeOf(own, about, axis, run) {
  const [low, high] = axis.id === "time" ? [0, about.last_at - run.zero] : [about.first_step, about.last_step];
  return [Math.min(low, own.x[0]), Math.max(high, own.x.at(-1))];
}

/** A line for each run, with what was superseded at that place: its height does not change under the pointer. */
function Legend({ curves, cursor, axis, runs, theme }) {
  const compared = runs.length > 1;
  const tails = cursor === null ? []
    : curves.filter((curve) => curve.superseded && cursor >= curve.x[0] && cursor <= curve.x.at(-1));
  return html`<div class="chart-legend" aria-hidden="true">
    ${curves.filter((curve) => !curve.superseded).map((curve, row) => {
      const at = cursor === null ? -1 : nearestOn(curve.x, cursor);
      return html`<div class="legend-row" key=${curve.run}>
        ${(compared || cursor !== null) && html`<${Sample} curve=${curve} theme=${theme} />`}
        ${compared && html`<span class="legend-name">${runs[curve.at]?.title}</span>`}
        ${at >= 0 && html`<span class="legend-value">${saidAt(curve, at)}</span>`}
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
