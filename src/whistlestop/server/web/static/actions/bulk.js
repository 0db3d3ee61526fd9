// One verb for many runs: what happens to which, what is refused and why, and afterwards what came of each.
import { html, useEffect, useRef, useState } from "../lib.js";
import { api } from "../api.js";
import { Button, Dialog, Icon, ProblemBox, Spinner, toast } from "../ui/index.js";
import { Footer, NoteField } from "./state.js";
import { NAMES, withTimes } from "./words.js";

const SHOWN = 200;
const JUDGED = 500;  // runs that the server judges in one answer
const AT_ONCE = 5000;  // and that it is asked to act on in one request
const PAGE = 1000;  // runs in one answer
const SAYS = {
  stop: "ends the training phase at its next step and keeps the result",
  pause: "saves and leaves its slots; it can be resumed",
  resume: "goes back into the queue",
  kill: "is killed for good; its checkpoints stay",
  cancel: "is killed for good, and its checkpoints are discarded",
  delete: "is deleted with its metrics, logs and checkpoints; this can't be undone",
};

/** Run by run, and by their names also where a filter chose them: what is done afterwards is what was shown, and no more. */
async function judge(verb, { runs, filter }, wanted) {
  const all = runs ?? await idsOf(filter, wanted);
  const items = [];
  for (let at = 0; at < all.length && wanted(); at += JUDGED) {
    items.push(...(await api.post("/bulk/preview", { verb, runs: all.slice(at, at + JUDGED) })).items);
  }
  return items;
}

async function idsOf(filter, wanted) {
  const found = new Set();  // a run may move to the next page meanwhile
  for (let after; wanted();) {
    const page = await api.get("/runs", { ...filter, sort: "created", limit: PAGE, after });
    for (const run of page.runs) found.add(run.id);
    after = page.next ?? undefined;
    if (!after) break;
  }
  return [...found];
}

/** Of a stop the phases that were shown: by now another one may run, which nobody has agreed to end. */
function request(verb, items, note) {
  const phases = Object.fromEntries(items.filter((item) => item.phase).map((item) => [item.run, item.phase]));
  return { verb, runs: items.map((item) => item.run), note, ...(verb === "stop" ? { phases } : {}) };
}

const fine = (items) => items.filter((item) => item.ok);
const refused = (items) => items.filter((item) => !item.ok);
const runsIn = (count) => `${count.toLocaleString("en-US")} run${count === 1 ? "" : "s"}`;

/** `bulk`: {runs: [ids], total} or {filter: {project, status, search, workflow}, total}. */
export function BulkDialog({ verb, bulk, close }) {
  const [seen, setSeen] = useState(null);
  const [done, setDone] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const [note, setNote] = useState("");
  const through = useRef({ runs: 0, items: [] }).current;  // the requests that were answered, should a later one not be
  useEffect(() => {
    let gone = false;
    judge(verb, bulk, () => !gone).then((items) => gone || setSeen(items), (failed) => gone || setProblem(failed));
    return () => { gone = true; };
  }, []);
  const go = async () => {
    setBusy(true);
    setProblem(null);
    try {
      const able = fine(seen);
      while (through.runs < able.length) {
        const asked = able.slice(through.runs, through.runs + AT_ONCE);
        through.items.push(...(await api.post("/bulk", request(verb, asked, note))).items);
        through.runs += asked.length;
      }
      setDone([...through.items, ...refused(seen)]);
      toast(`${fine(through.items).length.toLocaleString("en-US")} of ${runsIn(able.length)}: ${name.toLowerCase()} is done or under way.`);
      bulk.onDone?.();
    } catch (failed) {
      setProblem(failed);
    }
    setBusy(false);
  };
  const name = NAMES[verb] ?? "Resume";
  const danger = ["kill", "cancel", "delete"].includes(verb);
  const able = seen ? fine(seen).length : 0;
  const footer = done ? html`<${Button} kind="primary" onClick=${close}>Close<//>`
    : html`<${Footer} close=${close} kind=${danger ? "danger" : "primary"} busy=${busy} disabled=${able < 1}
        confirm=${`${name} ${runsIn(able)}`} onConfirm=${go} />`;
  return html`<${Dialog} wide title=${`${name} ${runsIn(seen?.length ?? bulk.total)}`} tone=${danger ? "danger" : "plain"}
    onClose=${close} footer=${footer}>
    ${!done && html`<p class="question">${danger ? `This will permanently ${verb} the runs below.` : "The runs below are asked to do it."} Each one ${SAYS[verb]}.</p>`}
    <${ProblemBox} problem=${problem} />
    ${!seen && !problem && html`<${Spinner} label="Looking at what would happen" />`}
    ${seen && !done && html`<${Outcome} verb=${verb} items=${seen} before />
      ${verb !== "delete" && html`<${NoteField} value=${note} onInput=${setNote} />`}`}
    ${done && html`<${Outcome} verb=${verb} items=${done} />`}
  <//>`;
}

function Outcome({ verb, items, before }) {
  const [able, not] = [fine(items), refused(items)];
  const shown = [...able, ...not].slice(0, SHOWN);  // those that it happens to first: they are what one has to check
  const does = verb === "delete" ? "deleted" : "asked";
  return html`<p class="row" role="status"><strong>${able.length.toLocaleString("en-US")} ${before ? "will be " : ""}${does}</strong>
      ${not.length > 0 && html`<span class="tag is-failed">${not.length.toLocaleString("en-US")} ${before ? "will be " : ""}refused</span>`}</p>
    <div class="scroll bulk-box" tabindex="0" role="region" aria-label="Run by run"><table class="table">
      <caption class="visually-hidden">What happens to each run</caption>
      <thead><tr><th scope="col" class="is-number">#</th><th scope="col">Name</th><th scope="col">${before ? "What will happen" : "What happened"}</th></tr></thead>
      <tbody>${shown.map((item) => html`<tr key=${item.run} data-ok=${item.ok ? "true" : "false"}>
        <td class="is-number">${item.number || "–"}</td><td>${item.name}</td>
        <td class=${item.ok ? "" : "is-hurt"}>${!item.ok && html`<${Icon} name="alert" /> `}${withTimes(item.text)}</td></tr>`)}</tbody>
    </table></div>
    ${items.length > shown.length && html`<p class="muted small">and ${(items.length - shown.length).toLocaleString("en-US")} more</p>`}`;
}
