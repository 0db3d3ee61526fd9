// One verb for many runs: what happens to which, what is refused and why, and afterwards what came of each.
import { html, useEffect, useState } from "../lib.js";
import { api } from "../api.js";
import { Button, Dialog, Icon, ProblemBox, Spinner, toast } from "../ui/index.js";
import { Footer, NoteField } from "./state.js";
import { NAMES, withTimes } from "./words.js";

const SHOWN = 200;
const AT_ONCE = 5000;  // ids in one request
const PAGE = 1000;  // runs in one answer
const SAYS = {
  stop: "ends the training phase at its next step and keeps the result",
  pause: "saves and leaves its slots; it can be resumed",
  resume: "goes back into the queue",
  kill: "is killed for good; its checkpoints stay",
  cancel: "is killed for good, and its checkpoints are discarded",
  delete: "is deleted with its metrics, logs and checkpoints; this can't be undone",
};

/** By their names, also where a filter chose them: what comes after the preview is not touched, nobody has agreed to it. */
async function judge(verb, { runs, filter }) {
  const all = runs ?? await idsOf(filter);
  if (!all.length) return { items: [], total: 0, refused: 0, runs: all };
  const seen = await api.post("/bulk/preview", { verb, runs: all.slice(0, AT_ONCE) });
  return { ...seen, total: all.length, runs: all };
}

async function idsOf(filter) {
  const found = new Set();  // a run may move to the next page meanwhile
  for (let after; ;) {
    const page = await api.get("/runs", { ...filter, sort: "created", limit: PAGE, after });
    for (const run of page.runs) found.add(run.id);
    after = page.next ?? undefined;
    if (!after) return [...found];
  }
}

/** `bulk`: {runs: [ids], total} or {filter: {project, status, search}, total}. */
export function BulkDialog({ verb, bulk, close }) {
  const [seen, setSeen] = useState(null);
  const [done, setDone] = useState(null);
  const [problem, setProblem] = useState(null);
  const [busy, setBusy] = useState(false);
  const [note, setNote] = useState("");
  useEffect(() => {
    judge(verb, bulk).then(setSeen, setProblem);
  }, []);
  const go = async () => {
    setBusy(true);
    setProblem(null);
    try {
      const items = [];
      for (let at = 0; at < seen.runs.length; at += AT_ONCE) {
        items.push(...(await api.post("/bulk", { verb, runs: seen.runs.slice(at, at + AT_ONCE), note })).items);
      }
      setDone(items);
      toast(`${items.filter((item) => item.ok).length} of ${items.length} runs: ${(NAMES[verb] ?? verb).toLowerCase()} is done or under way.`);
      bulk.onDone?.();
    } catch (refused) {
      setProblem(refused);
    }
    setBusy(false);
  };
  const danger = ["kill", "cancel", "delete"].includes(verb);
  const able = seen ? seen.total - seen.refused : 0;
  const footer = done ? html`<${Button} kind="primary" onClick=${close}>Close<//>`
    : html`<${Footer} close=${close} kind=${danger ? "danger" : "primary"} busy=${busy} disabled=${!seen || able < 1}
        confirm=${`${NAMES[verb] ?? "Resume"} ${able.toLocaleString("en-US")} run${able === 1 ? "" : "s"}`} onConfirm=${go} />`;
  return html`<${Dialog} wide title=${`${NAMES[verb] ?? "Resume"} ${(seen?.total ?? bulk.total).toLocaleString("en-US")} runs`} tone=${danger ? "danger" : "plain"}
    onClose=${close} footer=${footer}>
    ${!done && html`<p class="question">${danger ? `This will permanently ${verb} the runs below.` : "The runs below are asked to do it."} Each one ${SAYS[verb]}.</p>`}
    <${ProblemBox} problem=${problem} />
    ${!seen && !problem && html`<${Spinner} label="Looking at what would happen" />`}
    ${seen && !done && html`<${Outcome} items=${seen.items} total=${seen.total} refused=${seen.refused} before />
      ${verb !== "delete" && html`<${NoteField} value=${note} onInput=${setNote} />`}`}
    ${done && html`<${Outcome} items=${done} total=${done.length} refused=${done.filter((item) => !item.ok).length} />`}
  <//>`;
}

function Outcome({ items, total, refused, before }) {
  // Those that it happens to first: they are what one has to check.
  const sorted = [...items].sort((a, b) => Number(b.ok) - Number(a.ok));
  const fine = total - refused;
  return html`<p class="row" role="status"><strong>${fine.toLocaleString("en-US")} ${before ? "will be asked" : "asked"}</strong>
      ${refused > 0 && html`<span class="tag is-failed">${refused.toLocaleString("en-US")} ${before ? "will be refused" : "refused"}</span>`}</p>
    <div class="scroll bulk-box" tabindex="0" role="region" aria-label="Run by run"><table class="table">
      <caption class="visually-hidden">What happens to each run</caption>
      <thead><tr><th scope="col" class="is-number">#</th><th scope="col">Name</th><th scope="col">${before ? "What will happen" : "What happened"}</th></tr></thead>
      <tbody>${sorted.slice(0, SHOWN).map((item) => html`<tr key=${item.run} data-ok=${item.ok ? "true" : "false"}>
        <td class="is-number">${item.number || "–"}</td><td>${item.name}</td>
        <td class=${item.ok ? "" : "is-hurt"}>${!item.ok && html`<${Icon} name="alert" /> `}${withTimes(item.text)}</td></tr>`)}</tbody>
    </table></div>
    ${total > Math.min(sorted.length, SHOWN) && html`<p class="muted small">and ${(total - Math.min(sorted.length, SHOWN)).toLocaleString("en-US")} more</p>`}`;
}
