// Pools: what capacity there is, what it costs, who has it, and how long it stays.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { length } from "../format.js";
import { mayAdmin, useMe } from "../me.js";
import { Link } from "../route.js";
import { Ago, Button, Empty, ProblemBox, Spinner } from "../ui/index.js";
import { PoolDialog } from "../capacity/dialogs.js";
import { Sizes } from "../capacity/sizes.js";
import { Slots } from "../capacity/slots.js";
import { excluded, marketWord, price, slotsWord } from "../capacity/words.js";
import { useListed } from "../lists/listed.js";

const AGAIN = 1000;
const EVERY = 5000;  // a pool's size changes without any run
const HOLDERS = 12;

export default function Page() {
  const me = useMe();
  const [pools, problem, again] = useListed(() => api.get("/pools"), AGAIN, EVERY);
  const [changed, setChanged] = useState(null);
  const slots = (pools ?? []).reduce((sum, pool) => sum + pool.slots, 0);
  const free = (pools ?? []).reduce((sum, pool) => sum + pool.free, 0);
  return html`
    <div class="page-head"><div><h1>Pools</h1>${pools && html`<p>${pools.length} pool${pools.length === 1 ? "" : "s"}, ${free.toLocaleString("en-US")} of ${
      slotsWord(slots)} free</p>`}</div></div>
    <${ProblemBox} problem=${problem} />
    ${!pools ? !problem && html`<${Spinner} label="Loading the pools" />` : html`<div class="stack">
      ${pools.map((pool) => html`<${Pool} key=${pool.name} pool=${pool} change=${mayAdmin(me) ? () => setChanged(pool) : null} />`)}
      ${pools.length < 2 && html`<${More} admin=${mayAdmin(me)} />`}
    </div>`}
    ${changed && html`<${PoolDialog} pool=${changed} close=${() => setChanged(null)} after=${again} />`}`;
}

function Pool({ pool, change }) {
  const facts = [pool.engine === "local" ? "" : pool.on, pool.class, pool.region, pool.provider].filter(Boolean);
  return html`<section class="card capacity" data-pool=${pool.name} aria-labelledby=${`pool-${pool.name}`}>
    <div class="card-head"><h2 id=${`pool-${pool.name}`}>${pool.name}</h2>
      <span class="tag is-${pool.market}">${marketWord(pool.market)}</span>${facts.map((fact) => html`<span key=${fact} class="tag">${fact}</span>`)}
      <span class="push capacity-price"><span class="number">${price(pool.price)}</span> <span class="muted small">${pool.price === 1 ? "credit" : "credits"} per slot-hour</span></span>
      ${change && html`<${Button} kind="plain" class="is-small" onClick=${change} aria-label=${`Change pool ${pool.name}`}>Change…<//>`}</div>
    ${pool.slots || pool.holders.length ? html`<${Slots} pool=${pool} />`
      : html`<p class="muted capacity-away">Away: it has no slots now. Runs that may use nothing else wait until it is back.</p>`}
    <dl class="capacity-facts">
      <div><dt>Used</dt><dd>${pool.slots ? `${(pool.slots - pool.free - excluded(pool)).toLocaleString("en-US")} of ${slotsWord(pool.slots)}${excluded(pool) ? `, ${excluded(pool).toLocaleString("en-US")} excluded` : ""}` : "–"}</dd></div>
      <div><dt>Taken back in the last day</dt><dd>${reclaims(pool)}</dd></div>
      <div><dt>Size</dt><dd><${Sizes} pool=${pool} /></dd></div>
    </dl>
    ${pool.holders.length > 0 && html`<ul class="holders">${pool.holders.slice(0, HOLDERS).map((one) => html`<li key=${`${one.run} ${one.attempt}`}>
      <${Link} href=${`/runs/${one.run}`}>#${one.number} ${one.name}<//><span class="muted">${one.phase}</span>
      <span class="faint">${one.slots.length === 1 ? `slot ${one.slots[0]}` : `${one.slots.length} slots`}${one.host ? ` on ${one.host}` : ""}</span>
      ${one.leaves_at && html`<span class="tag is-waiting">has to leave</span>`}
      <span class="push muted nowrap">started <${Ago} at=${one.since} /></span></li>`)}
      ${pool.holders.length > HOLDERS && html`<li class="muted">and ${(pool.holders.length - HOLDERS).toLocaleString("en-US")} more</li>`}</ul>`}
  </section>`;
}

function reclaims(pool) {
  if (!pool.reclaims && pool.held_hours <= 0) return "nothing has ended here";
  const times = pool.reclaims === 0 ? "never" : pool.reclaims === 1 ? "once" : `${pool.reclaims.toLocaleString("en-US")} times`;
  const each = pool.reclaims > 1 ? `, after ${length((pool.held_hours * 3600) / pool.reclaims)} each` : "";
  return `${times} in ${length(pool.held_hours * 3600)} of use${each}`;
}

function More({ admin }) {
  return html`<${Empty} title="One pool, this machine">
    <p>${admin ? "Add others" : "An admin can add others"}, cheap ones that may be taken back and ones that stay, from a file or one by one:</p>
    <pre class="command">whistle pools add spot --market spot --slots 2 --price 0.3</pre>
    <p>A run says what it may use under <code>capacity</code> in its spec.</p><//>`;
}
