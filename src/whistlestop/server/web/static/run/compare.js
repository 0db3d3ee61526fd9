// Other runs beside this one: chosen from the project, kept in the address, told apart by colour and by dashes.
import { api } from "../api.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { setQuery } from "../route.js";
import { Button, Dialog, Icon, ProblemBox, Spinner, Status } from "../ui/index.js";
import { dashOf, MOST_RUNS } from "./chart-theme.js";

/** The runs that the address names, as far as they exist. */
export function useCompared(text, run) {
  const [found, setFound] = useState([]);
  const ids = idsOf(text).filter((id) => id !== run.id).slice(0, MOST_RUNS - 1);
  useEffect(() => {
    let left = false;
    Promise.all(ids.map((id) => api.get(`/runs/${encodeURIComponent(id)}`).catch(() => null))).then((runs) => {
      if (!left) setFound(runs.filter(Boolean));
    });
    return () => { left = true; };
  }, [ids.join(",")]);
  return found;
}

const idsOf = (text) => (typeof text === "string" ? text.split(",").filter(Boolean) : []);

export function Compare({ run, compared, theme }) {
  const [open, setOpen] = useState(false);
  const put = (ids) => setQuery({ compare: ids.length ? ids.join(",") : null });
  return html`<div class="compared">
    <${Button} kind="plain" onClick=${() => setOpen(true)}><${Icon} name="plus" />Compare<//>
    ${compared.length > 0 && html`<ul class="compared-list" aria-label="Runs compared with this one">
      ${[run, ...compared].map((one, at) => html`<li class="compared-run" key=${one.id}>
        <svg width="18" height="8" aria-hidden="true"><line x1="0" x2="18" y1="4" y2="4" stroke-width="2"
          stroke=${theme.curves[at]} stroke-dasharray=${dashOf(at).join(" ")} /></svg>
        <span class="cut">#${one.number} ${one.name}</span>
        ${at > 0 && html`<button type="button" class="button is-quiet is-icon is-small"
          aria-label="Compare no longer with #${one.number}"
          onClick=${() => put(compared.filter((other) => other !== one).map((other) => other.id))}
        ><${Icon} name="close" size="12" /></button>`}
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
        if (!left) setRuns(page.runs.filter((one) => one.id !== run.id));
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
