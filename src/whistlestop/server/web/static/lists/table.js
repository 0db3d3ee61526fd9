// The table of runs: column heads sort, boxes select, every row is a run that goes on by itself.
import { html } from "../lib.js";
import { credits, length, percent } from "../format.js";
import { Link, setQuery } from "../route.js";
import { Bar, Icon, Menu, Status, Ticking } from "../ui/index.js";
import { menuFor } from "../actions/index.js";
import { stoppedEarly } from "../run/words.js";
import { Sparkline } from "./sparkline.js";

const COLUMNS = [
  { id: "number", label: "#", sort: "created", first: "-", number: true },
  { id: "name", label: "Name", sort: "name", first: "" },
  { id: "status", label: "Status", sort: "status", first: "" },
  { id: "phase", label: "Phase" },
  { id: "done", label: "Completion" },
  { id: "elapsed", label: "Elapsed", sort: "started", first: "-", number: true, title: "Sorts by the start" },
  { id: "left", label: "Time left", number: true },
  { id: "credits", label: "Credits", number: true },
  { id: "loss", label: "Loss" },
];

export function RunTable({ runs, me, sort, selection, lines }) {
  return html`<div class="scroll runs-box"><table class="table runs">
    <caption class="visually-hidden">Runs</caption>
    <thead><tr>
      <td class="pick-cell"><input type="checkbox" aria-label="Select all runs of this page" checked=${selection.page === "all"}
        ref=${(box) => { if (box) box.indeterminate = selection.page === "some"; }} onChange=${selection.togglePage} /></td>
      ${COLUMNS.map((column) => html`<${Head} key=${column.id} column=${column} sort=${sort} />`)}
      <td><span class="visually-hidden">Actions</span></td>
    </tr></thead>
    <tbody>${runs.map((run) => html`<${Row} key=${run.id} run=${run} me=${me} selection=${selection} line=${lines[run.id]} />`)}</tbody>
  </table></div>`;
}

function Head({ column, sort }) {
  const look = `${column.number ? "is-number" : ""}`;
  if (!column.sort) return html`<th scope="col" class=${look}>${column.label}</th>`;
  const on = sort.replace(/^-/, "") === column.sort;
  const down = sort.startsWith("-");
  const next = on ? (down ? column.sort : `-${column.sort}`) : column.first + column.sort;
  return html`<th scope="col" class=${look} aria-sort=${on ? (down ? "descending" : "ascending") : undefined}>
    <button type="button" class="sort ${on ? "is-on" : ""}" title=${column.title}
      onClick=${() => setQuery({ sort: next === "-created" ? null : next, page: null })}>${column.label}<${Icon}
      name=${on && !down ? "up" : "down"} size=${12} /></button></th>`;
}

function Row({ run, me, selection, line }) {
  const going = run.status === "running" || run.status === "starting";
  const chosen = selection.has(run.id);
  const done = run.status === "completed" ? 1 : run.progress.fraction;
  const early = stoppedEarly(run);
  return html`<tr data-run=${run.id} data-number=${run.number} class=${chosen ? "is-chosen" : ""}>
    <td class="pick-cell"><input type="checkbox" aria-label=${`Select run ${run.number}, ${run.name}`} checked=${chosen}
      onClick=${(event) => selection.toggle(run.id, event)} /></td>
    <td class="is-number faint cell-number">${run.number}</td>
    <td class="cell-name"><span class="name-number">#${run.number} </span><${Link} class="run-name" href=${`/runs/${run.id}`}>${run.name}<//>
      ${run.note && html`<span class="cut note-line" title=${run.note}><${Icon} name="note" size=${12} /> ${run.note.split("\n").pop()}</span>`}</td>
    <td class="cell-status"><${Status} status=${run.status} recovering=${run.recovering} requested=${run.requested} />
      <${Reason} run=${run} early=${early} /></td>
    <td class="cell-phase" data-label="Phase" title=${run.phase}>${run.phase}</td>
    <td class="cell-done">${done === null || done === undefined
      ? html`<span class="faint">${run.progress.step ? `step ${run.progress.step.toLocaleString("en-US")}` : "–"}</span>`
      : html`<${Bar} value=${done} label=${`Completion of run ${run.number}`} tone=${run.status} /><span class="number" title=${early ? `${early.steps}, stopped early` : undefined}>${early ? `at ${percent(early.share)}` : percent(done)}</span>`}</td>
    <td class="is-number" data-label="Elapsed">${run.elapsed_s || going
      ? html`<${Ticking} seconds=${run.elapsed_s} since=${run.told} going=${going} />` : html`<span class="faint">–</span>`}</td>
    <td class="is-number" data-label="Left">${run.eta_s === null ? html`<span class="faint">–</span>` : length(run.eta_s)}</td>
    <td class="is-number" data-label="Credits">${credits(spent(run, going))}</td>
    <td class="cell-loss"><${Sparkline} line=${line} label=${`run ${run.number}`} /></td>
    <td class="cell-menu"><${Menu} label=${`Actions of run ${run.number}, ${run.name}`} items=${menuFor(run, me)} /></td>
  </tr>`;
}

/** Between two messages it goes on at the pace it had so far. */
function spent(run, going) {
  if (!going || !run.elapsed_s) return run.credits.used;
  return run.credits.used + (run.credits.used / run.elapsed_s) * ((performance.now() - run.told) / 1000);
}

function Reason({ run, early }) {
  const text = run.status === "queued" && run.queue ? `#${run.queue.position} in the queue: ${run.queue.waits_for}`
    : early ? `${early.why}, ${early.steps}` : run.reason;
  return text ? html`<span class="cut run-reason" title=${text}>${text}</span>` : null;
}
