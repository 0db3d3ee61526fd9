// The queue: the slots of each pool, who holds them, and who waits for what, in order.
import { html } from "../lib.js";
import { api } from "../api.js";
import { excluded, price } from "../capacity/words.js";
import { useMe } from "../me.js";
import { Link } from "../route.js";
import { Ago, Empty, Menu, ProblemBox, Spinner, Status, Ticking } from "../ui/index.js";
import { menuFor } from "../actions/index.js";
import { useListed } from "../lists/listed.js";

const AGAIN = 700;
const DRAWN = 128;  // slots; a larger pool is a bar

export default function Page() {
  const me = useMe();
  const [state, problem] = useListed(async () => {
    const [queue, pools, live] = await Promise.all([
      api.get("/queue"), api.get("/pools"), api.get("/runs", { status: ["running", "starting"], sort: "started", limit: 200 }),
    ]);
    const told = performance.now();
    return { queue, pools, live: live.runs.map((run) => ({ ...run, told })) };
  }, AGAIN);
  return html`
    <div class="page-head"><div><h1>Queue</h1><p>Priority first, then first come. A phase starts when all its slots are free.</p></div></div>
    <${ProblemBox} problem=${problem} />
    ${!state ? !problem && html`<${Spinner} label="Loading the queue" />` : html`<div class="stack is-wide">
      <section class="stack" aria-label="Pools">${state.pools.map((pool) => html`<${Pool} key=${pool.name} pool=${pool} live=${state.live} />`)}</section>
      <section class="stack"><h2>Waiting${state.queue.length > 0 && html` <span class="tab-count">${state.queue.length}</span>`}</h2>
        ${state.queue.length ? html`<${Waiting} runs=${state.queue} me=${me} />`
          : html`<${Empty} title="Nobody waits">A run that is submitted now starts as soon as its slots are free.<//>`}</section>
    </div>`}`;
}

function Pool({ pool, live }) {
  const held = new Map();
  for (const run of live) {
    for (const phase of run.phases) {
      for (const attempt of phase.attempts) {
        if (attempt.status === "started" && attempt.pool === pool.name) {
          for (const slot of attempt.slots) held.set(slot, { run, phase: phase.name });
        }
      }
    }
  }
  const used = pool.slots - pool.free - excluded(pool);
  const off = (slot) => pool.hosts.some((host) => host.excluded && slot >= host.first && slot < host.first + host.slots);
  const runs = [...new Map([...held.values()].map((one) => [one.run.id, one])).values()];
  return html`<div class="card pool" data-pool=${pool.name}>
    <div class="card-head"><h2>${pool.name}</h2><span class="muted">${pool.slots ? `${used} of ${pool.slots} slot${pool.slots === 1 ? "" : "s"} used, ${pool.free} free${excluded(pool) ? `, ${excluded(pool)} excluded` : ""}` : "away"}</span>
      <span class="push muted small">${price(pool.price)} ${pool.price === 1 ? "credit" : "credits"} per slot-hour</span></div>
    ${pool.slots <= DRAWN
      ? html`<ul class="slots" aria-label=${`Slots of ${pool.name}`}>${Array.from({ length: pool.slots }, (_, slot) => {
          const holder = held.get(slot);
          return html`<li key=${slot} class="slot ${holder ? "is-used" : ""}" title=${holder ? `#${holder.run.number} ${holder.run.name}, ${holder.phase}` : off(slot) ? "excluded" : "free"}>
            ${holder ? html`<${Link} href=${`/runs/${holder.run.id}`} aria-label=${`Slot ${slot}: run ${holder.run.number}, ${holder.run.name}`}>#${holder.run.number}<//>`
              : html`<span class="visually-hidden">Slot ${slot}: </span><span class="slot-free">${off(slot) ? "off" : "free"}</span>`}</li>`;
        })}</ul>`
      : html`<p class="muted">${used.toLocaleString("en-US")} slots are held by ${runs.length} runs.</p>`}
    ${runs.length > 0 && html`<ul class="holders">${runs.slice(0, 20).map(({ run, phase }) => html`<li key=${run.id}><${Status} status=${run.status} requested=${run.requested} />
      <${Link} href=${`/runs/${run.id}`}>#${run.number} ${run.name}<//><span class="muted">${phase}</span>
      <span class="push number muted"><${Ticking} seconds=${run.elapsed_s} since=${run.told} going=${true} /></span></li>`)}</ul>`}
  </div>`;
}

function Waiting({ runs, me }) {
  return html`<div class="scroll"><table class="table queue"><caption class="visually-hidden">Runs that wait, in order</caption>
    <thead><tr><th scope="col" class="is-number">Place</th><th scope="col">Run</th><th scope="col">Project</th><th scope="col">Phase</th>
      <th scope="col">Waits for</th><th scope="col" class="is-number">Priority</th><th scope="col">Submitted</th><td></td></tr></thead>
    <tbody>${runs.map((run) => html`<tr key=${run.id} data-run=${run.id}>
      <td class="is-number">${run.queue?.position ?? "–"}</td>
      <td><${Link} href=${`/runs/${run.id}`}>#${run.number} ${run.name}<//>${run.recovering && html` <span class="tag">recovering</span>`}</td>
      <td><${Link} class="muted" href=${`/projects/${encodeURIComponent(run.project)}`}>${run.project}<//></td><td>${run.phase}</td>
      <td class="waits">${run.queue?.waits_for ?? run.reason ?? "–"}</td><td class="is-number">${run.priority}</td>
      <td class="nowrap"><${Ago} at=${run.created_at} /> <span class="muted small">by ${run.created_by}</span></td>
      <td class="cell-menu"><${Menu} label=${`Actions of run ${run.number}, ${run.name}`} items=${menuFor(run, me)} /></td></tr>`)}</tbody>
  </table></div>`;
}
