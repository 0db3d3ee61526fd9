// The charts of a run: what matters first, one crosshair and one zoom for all, other runs beside it.
import { api, isAway } from "../api.js";
import { length, number } from "../format.js";
import { html, useCallback, useEffect, useMemo, useRef, useState } from "../lib.js";
import { setQuery } from "../route.js";
import { Empty, ProblemBox, Spinner } from "../ui/index.js";
import { ChartBox } from "./chart-box.js";
import { MOST_RUNS, useTheme } from "./chart-theme.js";
import { Toolbar, useKept } from "./charts-toolbar.js";
import { keyOf, perEpoch, phasesOf, sectionsOf } from "./charts-names.js";
import { ChartStore } from "./charts-store.js";
import { useCompared } from "./compare.js";

const FIRST = 24;  // charts of a section that are there at once
const PACE = 1000;

/** `series` is the newest message of that name from the run's stream. */
export function Charts({ run, query, series: message }) {
  const store = useMemo(() => new ChartStore(), [run.id]);
  useEffect(() => () => store.close(), [store]);
  const { series, problem } = useSeries(run, message, store);
  const [settings, keep] = useKept();
  const theme = useTheme();
  useRemembered(run.id, query);
  const { runs: compared, failed } = useCompared(query.compare, run, () => store.touchShown());
  const phases = useMemo(() => phasesOf(run, series ?? []), [run.phases.length, series]);
  const { phase, begun } = usePhase(run, phases, query.phase);
  const axis = ["time", "epoch"].includes(query.axis) ? query.axis : "step";
  const kind = axis === "time" ? "time" : "step";
  const view = useMemo(() => ({ kind, from: bound(query.from), to: bound(query.to) }), [kind, query.from, query.to]);
  const runs = useMemo(
    () => [run, ...compared].slice(0, MOST_RUNS).map((one) => ({ id: one.id, title: titleOf(one), zero: zeroOf(one) })),
    [run.id, run.started_at, compared],
  );
  store.configure({ axis: kind, from: view.from, to: view.to }, runs);

  // Steps are those of a phase: an address that names them names it, too.
  const named = phase ?? (phases.length === 1 ? phases[0] : "*");
  const zoom = useCallback((from, to) => {
    if ((to ?? Infinity) > (from ?? -Infinity)) setQuery({ from: tidy(from), to: tidy(to), phase: named });
  }, [named]);
  const reset = useCallback(() => setQuery({ from: null, to: null }), []);
  const choose = (chosen) => setQuery({ phase: chosen, ...(kind === "time" ? {} : { from: null, to: null }) });
  const trimmed = query.outliers === "ignore";
  const shown = useMemo(() => ({ ...settings, trimmed }), [settings, trimmed]);

  if (problem && !series) return html`<${ProblemBox} problem=${problem} />`;
  if (!series) return html`<${Spinner} label="Loading the charts" />`;
  if (!series.length) {
    return html`<${Empty} title="Nothing logged yet">What the program logs (<code>run.log(loss=…)</code>) is drawn here as it comes.<//>`;
  }
  const sections = sectionsOf(series, { phase, search: query.chart });
  return html`<div class="charts">
    <${Toolbar} run=${run} query=${query} phases=${phases} phase=${phase} begun=${begun} axis=${axis} settings=${shown}
      keep=${keep} zoomed=${view.from !== null || view.to !== null} onReset=${reset} onPhase=${choose} compared=${compared} failed=${failed}
      epochs=${series.some((one) => perEpoch(run, one.phase))} theme=${theme} />
    ${!sections.length && html`<${Empty} title="No chart has such a name">${query.chart}<//>`}
    ${sections.map((section) => html`<${Section} key=${section.id} section=${section} open=${Boolean(query.chart)}
      run=${run} store=${store} axis=${axis} view=${view} settings=${shown} theme=${theme} runs=${runs}
      several=${phases.length > 1} onZoom=${zoom} onReset=${reset} />`)}
  </div>`;
}

const KEPT = ["phase", "axis", "from", "to", "compare", "chart", "outliers"];
const left = new Map();  // run -> what the address said of its charts when they were left

/** Another tab's address says nothing of the charts: back here, they are as they were. */
function useRemembered(run, query) {
  const known = useRef(null);
  const said = Object.fromEntries(KEPT.filter((name) => query[name] !== undefined).map((name) => [name, query[name]]));
  useEffect(() => {
    if (query.tab !== "charts") return;  // on the way to another tab
    if (known.current !== run && !Object.keys(said).length && left.has(run)) setQuery(left.get(run));
    else left.set(run, said);
    known.current = run;
  }, [run, query.tab, JSON.stringify(said)]);
}

/** The phase that is shown: the address's, else the one of when the tab was opened. `begun`: one that has come since. */
function usePhase(run, phases, asked) {
  const opened = useRef({ run: null, phase: null, seen: new Set() });
  if (phases.length && opened.current.run !== run.id) {
    const phase = phases.includes(run.phase) ? run.phase : phases.at(-1);
    opened.current = { run: run.id, phase, seen: new Set(phases) };
  }
  const { phase: first, seen } = opened.current;
  const every = asked === "*" || phases.length < 2;
  const phase = every ? null : phases.includes(asked) ? asked : first;
  if (asked === "*") phases.forEach((one) => seen.add(one));
  if (phase) seen.add(phase);
  return { phase, begun: phase && (phases.findLast((one) => !seen.has(one)) ?? null) };
}

function Section({ section, open, run, store, axis, view, settings, theme, runs, several, onZoom, onReset }) {
  const [all, setAll] = useState(false);
  const shown = all ? section.series : section.series.slice(0, FIRST);
  const boxes = html`<div class="chart-grid">
    ${shown.map((one) => html`<${ChartBox} key=${keyOf(one.phase, one.name)} store=${store} summary=${one}
      axis=${axisOf(axis, perEpoch(run, one.phase))} view=${view} settings=${settings} theme=${theme} runs=${runs}
      several=${several} onZoom=${onZoom} onReset=${onReset} />`)}
  </div>
  ${shown.length < section.series.length && html`<button type="button" class="button is-plain" onClick=${() => setAll(true)}
    >Show all ${section.series.length} of ${section.title}</button>`}`;
  if (!section.folded) {
    return html`<section class="chart-section"><h2>${section.title} <${Count} of=${section} /></h2>${boxes}</section>`;
  }
  return html`<${Folded} section=${section} open=${open}>${boxes}<//>`;
}

/** What is folded is not drawn, and asks for nothing. */
function Folded({ section, open, children }) {
  const [opened, setOpened] = useState(open);
  return html`<details class="chart-section" open=${opened || open} onToggle=${(event) => setOpened(event.currentTarget.open)}>
    <summary><h2>${section.title} <${Count} of=${section} /></h2></summary>
    ${(opened || open) && children}
  </details>`;
}

const Count = ({ of }) => html`<span class="tab-count">${of.series.length}</span>`;

/** The list of what is logged, kept up to date by the stream: a name that is new is looked up. */
function useSeries(run, message, store) {
  const [series, setSeries] = useState(null);
  const [problem, setProblem] = useState(null);
  const known = useRef(new Set());
  const odd = useRef(new Set());
  const looking = useRef({ busy: false, again: false, gone: false });

  const look = useCallback(async () => {
    const state = looking.current;
    if (state.busy) {
      state.again = true;
      return;
    }
    state.busy = true;
    try {
      const found = (await api.get(`/runs/${encodeURIComponent(run.id)}/series`)).series;
      known.current = new Set(found.map((one) => keyOf(one.phase, one.name)));
      odd.current = new Set(found.filter((one) => one.last === null).map((one) => keyOf(one.phase, one.name)));
      setSeries(found);
      setProblem(null);
    } catch (error) {
      setProblem(error);
      state.again ||= isAway(error);
    }
    setTimeout(() => {
      state.busy = false;
      if (state.again && !state.gone) {
        state.again = false;
        look();
      }
    }, PACE);
  }, [run.id]);

  useEffect(() => {
    known.current = new Set();
    setSeries(null);
    look();
    return () => {
      looking.current.gone = true;  // a question that nobody waits for any more is not asked again
      looking.current = { busy: false, again: false, gone: false };
    };
  }, [look]);

  useEffect(() => {
    if (!message) return;
    const keys = message.series.map((one) => keyOf(one.phase, one.name));
    // A new name; or one that ends, or ended, in what is no number: the list says how many there are.
    if (keys.some((key, at) => !known.current.has(key) || message.series[at].value === null || odd.current.has(key))) look();
    store.touch(keys);
  }, [message]);

  // A new attempt supersedes what was drawn, also where nothing is logged yet.
  const attempts = run.phases.reduce((sum, phase) => sum + phase.attempts.length, 0);
  useEffect(() => {
    store.touch(known.current);
  }, [attempts, run.status]);
  return { series, problem };
}

const axes = new Map();

/** How an x is written: short below the plot, whole in words. */
function axisOf(id, epoch) {
  const key = `${id} ${epoch}`;
  if (!axes.has(key)) axes.set(key, makeAxis(id, epoch));
  return axes.get(key);
}

function makeAxis(id, epoch) {
  const whole = (x) => Math.round(x).toLocaleString("en-US");
  if (id === "time") return { id, title: "elapsed", label: length, word: length };
  if (id === "epoch" && epoch) {
    return { id, title: "epoch", label: (x) => number(Number((x / epoch).toFixed(2))), word: (x) => `epoch ${(x / epoch).toFixed(2)}, step ${whole(x)}` };
  }
  return { id: "step", title: "step", label: whole, word: (x) => `step ${whole(x)}` };
}

const titleOf = (run) => `#${run.number} ${run.name}`;
const zeroOf = (run) => new Date(run.started_at ?? run.created_at).getTime() / 1000;
const tidy = (value) => (value === null ? null : Number(value.toPrecision(10)));

function bound(text) {
  const value = Number(text);
  return text === undefined || text === "" || !Number.isFinite(value) ? null : value;
}
