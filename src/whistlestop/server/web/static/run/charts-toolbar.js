// What is set for all charts at once. What others should see by the same link is in the address, taste is remembered.
import { html, useCallback, useEffect, useRef, useState } from "../lib.js";
import { setQuery } from "../route.js";
import { Button, Icon } from "../ui/index.js";
import { Compare } from "./compare.js";

const PLACE = "whistle.charts";
const FIRST = { smoothing: 0, log: false, superseded: true };

/** Smoothing, scale and the like, kept in this browser. */
export function useKept() {
  const [settings, set] = useState(() => {
    try {
      return { ...FIRST, ...JSON.parse(localStorage.getItem(PLACE) ?? "{}") };
    } catch {
      return FIRST;
    }
  });
  const keep = useCallback((changes) => set((before) => {
    const after = { ...before, ...changes };
    try {
      localStorage.setItem(PLACE, JSON.stringify(after));
    } catch {
      // Private windows may refuse: then it holds until the page is left.
    }
    return after;
  }), []);
  return [settings, keep];
}

export function Toolbar({
  run, query, phases, phase, begun, axis, settings, keep, zoomed, onReset, onPhase, compared, failed, epochs, theme,
}) {
  return html`<div class="chart-tools" role="group" aria-label="Settings of all charts">
    <${Search} value=${query.chart ?? ""} />
    ${phases.length > 1 && html`<label class="tool">Phase
      <select value=${phase ?? "*"} onChange=${(event) => onPhase(event.target.value)}>
        <option value="*">all</option>${phases.map((name) => html`<option key=${name} value=${name}>${name}</option>`)}
      </select></label>`}
    ${begun && html`<button type="button" class="button is-plain is-small" onClick=${() => onPhase(begun)}
      >${begun} has begun: show it</button>`}
    <fieldset class="segments"><legend class="visually-hidden">Axis</legend>
      ${["step", "epoch", "time"].map((id) => html`<label key=${id} title=${id === "epoch" && !epochs
        ? "This run's loop has not said how many steps make an epoch" : undefined}>
        <input type="radio" name="axis" value=${id} checked=${axis === id} disabled=${id === "epoch" && !epochs}
          onChange=${() => setQuery({ axis: id === "step" ? null : id, ...(sameUnit(axis, id) ? {} : { from: null, to: null }) })} />
        <span>${id}</span></label>`)}
    </fieldset>
    <label class="tool">Smoothing
      <input type="range" min="0" max="0.99" step="0.01" value=${settings.smoothing}
        onInput=${(event) => keep({ smoothing: Number(event.target.value) })} />
      <output class="number">${settings.smoothing.toFixed(2)}</output></label>
    <label class="tool"><input type="checkbox" checked=${settings.log}
      onChange=${(event) => keep({ log: event.target.checked })} /> Log scale</label>
    <label class="tool" title="Shows the 1st to the 99th percentile of the values; arrows stand where others lie outside">
      <input type="checkbox" checked=${settings.trimmed}
        onChange=${(event) => setQuery({ outliers: event.target.checked ? "ignore" : null })} /> Ignore outliers</label>
    <label class="tool" title="What earlier attempts logged after the step at which a later one resumed">
      <input type="checkbox" checked=${settings.superseded}
        onChange=${(event) => keep({ superseded: event.target.checked })} /> Superseded</label>
    <${Compare} run=${run} compared=${compared} failed=${failed} theme=${theme} />
    <span class=${zoomed ? "" : "is-kept"}><${Button} kind="plain" onClick=${onReset}><${Icon} name="close" />Reset zoom<//></span>
  </div>`;
}

const sameUnit = (one, other) => (one === "time") === (other === "time");

function Search({ value }) {
  const [text, setText] = useState(value);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  useEffect(() => {
    if (!timer.current) setText(value);  // an address that was restored
  }, [value]);
  const type = (event) => {
    const typed = event.target.value;
    setText(typed);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => {
      timer.current = 0;
      setQuery({ chart: typed || null });
    }, 150);
  };
  return html`<input type="search" class="chart-search" placeholder="Find a chart" aria-label="Find a chart by name"
    value=${text} onInput=${type} />`;
}
