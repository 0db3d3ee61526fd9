// Other runs beside this one: chosen from the project, kept in the address, told apart by colour and by dashes.
import { api } from "../api.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { setQuery } from "../route.js";
import { Button, Dialog, Icon, ProblemBox, Spinner, Status } from "../ui/index.js";
import { dashOf, MOST_RUNS } from "./chart-theme.js";
import { isEnded } from "./reduce.js";

const PACE = 2000;  // the page's stream tells only of its own run: others are asked

/** The runs that the address names: {runs, failed: [{id, problem}]}. `onGrown` is called while one of them may grow. */
export function useCompared(text, run, onGrown) {
  const [found, setFound] = useState({ runs: [], failed: [] });
  const grown = useRef(onGrown);
  grown.current = onGrown;
  const ids = [...new Set(idsOf(text))].filter((id) => id !== run.id).slice(0, MOST_RUNS - 1);
  useEffect(() => {
    let left = false, timer = 0;
    const known = new Map();  // id -> {run, problem}
    const look = async () => {
      const wanted = document.hidden && known.size ? [] : ids.filter((id) => mayChange(known.get(id)));
      const told = known.size > 0 && wanted.some((id) => known.get(id).run);
      await Promise.all(wanted.map(async (id) => {
        try {
          known.set(id, { run: await api.get(`/runs/${encodeURIComponent(id)}`), problem: null });
        } catch (problem) {
          // A server that is away for a moment takes no curve from the page.
          known.set(id, { run: isGone(problem) ? null : known.get(id)?.run ?? null, problem });
        }
      }));
      if (left) return;
      const all = ids.map((id) => ({ id, ...known.get(id) }));
      setFound((before) => unlessSame(before, {
        runs: all.flatMap((one) => one.run ?? []), failed: all.filter((one) => !one.run),
      }));
      if (told) grown.current();
      if (all.some(mayChange)) timer = setTimeout(look, PACE);
    };
    if (ids.length) look();
    else setFound((before) => unlessSame(before, { runs: [], failed: [] }));
    return () => {
      left = true;
      clearTimeout(timer);
    };
  }, [ids.join(",")]);
  return found;
}

const mayChange = (one) => !one || (one.run ? !isEnded(one.run) : !isGone(one.problem));
const isGone = (problem) => [404, 409, 410].includes(problem?.status);  // 409: the beginning of several ids

/** What the charts need of a run; all else may change without drawing anything anew. */
const essence = ({ runs, failed }) => JSON.stringify([
  runs.map((run) => [run.id, run.number, run.name, run.started_at]), failed.map((one) => [one.id, one.problem?.detail]),
]);
const unlessSame = (before, after) => (essence(before) === essence(after) ? before : after);

const idsOf = (text) => (typeof text === "string" ? text.split(",").filter(Boolean) : []);

export function Compare({ run, compared, failed, theme }) {
  const [open, setOpen] = useState(false);
  const without = (id) => [...compared, ...failed].map((other) => other.id).filter((other) => other !== id);
  const put = (ids) => setQuery({ compare: ids.length ? ids.join(",") : null });
  return html`<div class="compared">
    <${Button} kind="plain" onClick=${() => setOpen(true)}><${Icon} name="plus" />Compare<//>
    ${compared.length + failed.length > 0 && html`<ul class="compared-list" aria-label="Runs compared with this one">
      ${[run, ...compared].map((one, at) => html`<li class="compared-run" key=${one.id}>
        <svg width="18" height="8" aria-hidden="true"><line x1="0" x2="18" y1="4" y2="4" stroke-width="2"
          stroke=${theme.curves[at]} stroke-dasharray=${dashOf(at).join(" ")} /></svg>
        <span class="cut">#${one.number} ${one.name}</span>
        ${at > 0 && html`<button type="button" class="button is-quiet is-icon is-small"
          aria-label="Compare no longer with #${one.number}"
          onClick=${() => put(without(one.id))}
        ><${Icon} name="close" size="12" /></button>`}
      </li>`)}
      ${failed.map((one) => html`<li class="compared-run is-failed" key=${one.id}>
        <span class="cut" role="alert" title=${one.problem.detail}>${isGone(one.problem)
          ? `Run ${one.id} can't be found` : `Run ${one.id} can't be read: ${one.problem.detail}`}</span>
        <button type="button" class="button is-quiet is-icon is-small" aria-label="Compare no longer with ${one.id}"
          onClick=${() => put(without(one.id))}><${Icon} name="close" size="12" /></button>
      </li>`)}</ul>`}
    ${open && html`<${Choose} run=${run} compared=${compared} put=${put} onClose=${() => setOpen(false)} />`}
  </div>`;
}

function Choose({ run, compared, put, onClose }) {
  const [search, setSearch] = useState("");
  const [runs, setRuns] = useState(null);
  const [problem, setProblem] = useState(null);
  const [chosen, setChosen] = useState(() => compared.map((one) => one.id));
  const timer = useRef(0);
  useEffect(() => {
    let left = false;
    clearTimeout(timer.current);
    timer.current = setTimeout(async () => {
      try {
        const page = await api.get("/runs", { project: run.project, search: search || undefined, limit: 50 });
        if (left) return;
        setRuns(page.runs.filter((one) => one.id !== run.id));
        setProblem(null);
      } catch (error) {
        if (!left) setProblem(error);
      }
    }, runs ? 150 : 0);
    return () => { left = true; };
  }, [search]);
  const toggle = (id) => setChosen(chosen.includes(id) ? chosen.filter((one) => one !== id) : [...chosen, id]);
  const full = chosen.length >= MOST_RUNS - 1;
  const footer = html`<${Button} onClick=${onClose}>Cancel<//>
    <${Button} kind="primary" onClick=${() => { put(chosen); onClose(); }}>Compare<//>`;
  return html`<${Dialog} title="Compare with" onClose=${onClose} footer=${footer}>
    <input type="search" aria-label="Find a run of ${run.project}" placeholder="Find by name or note" value=${search}
      onInput=${(event) => setSearch(event.target.value)} />
    <${ProblemBox} problem=${problem} />
    ${!runs && !problem && html`<${Spinner} label="Loading runs" />`}
    ${runs && !runs.length && html`<p class="muted">No other run of ${run.project} is found.</p>`}
    ${runs && html`<ul class="choose">${runs.map((one) => html`<li key=${one.id}><label>
      <input type="checkbox" checked=${chosen.includes(one.id)} disabled=${full && !chosen.includes(one.id)}
        onChange=${() => toggle(one.id)} />
      <span class="number">#${one.number}</span> <span class="cut">${one.name}</span>
      <span class="push"><${Status} status=${one.status} /></span></label></li>`)}</ul>`}
    ${full && html`<p class="muted small">${MOST_RUNS - 1} other runs at most: more curves can't be told apart.</p>`}
  <//>`;
}
