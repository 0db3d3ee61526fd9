// The slots of a pool as squares, host by host: free, held and by whom, or not to be used.
import { html } from "../lib.js";
import { Link } from "../route.js";
import { Bar } from "../ui/index.js";
import { slotsWord } from "./words.js";

const DRAWN = 256;  // slots of a pool; a larger one has a bar for each host
const HOSTS = 64;

export function Slots({ pool }) {
  const held = new Map();
  for (const holder of pool.holders) for (const slot of holder.slots) held.set(slot, holder);
  const drawn = pool.slots <= DRAWN;
  const beyond = pool.holders.flatMap((holder) => holder.slots.filter((slot) => slot >= pool.slots).map((slot) => [slot, holder]));
  return html`<ul class="hosts-drawn">${pool.hosts.slice(0, HOSTS).map((host) => html`<li key=${host.name} class="host-drawn ${host.excluded ? "is-excluded" : ""}"
      data-host=${host.name}>
      ${host.name && html`<p class="host-name"><span class="cut" title=${host.name}>${host.name}</span>${host.excluded && html` <span class="tag is-waiting">excluded</span>`}</p>`}
      ${drawn ? html`<${Squares} host=${host} held=${held} />` : html`<${Share} host=${host} />`}</li>`)}
    ${beyond.length > 0 && html`<li class="host-drawn"><p class="host-name faint">beyond its size</p><ul class="squares">${beyond.map(([slot, holder]) => html`<${Square}
      key=${slot} slot=${slot} holder=${holder} />`)}</ul></li>`}
    ${pool.hosts.length > HOSTS && html`<li class="muted">and ${(pool.hosts.length - HOSTS).toLocaleString("en-US")} hosts more</li>`}</ul>`;
}

function Squares({ host, held }) {
  return html`<ul class="squares" aria-label=${host.name ? `Slots of ${host.name}` : "Slots"}>${Array.from({ length: host.slots }, (_, at) => html`<${Square}
    key=${at} slot=${host.first + at} holder=${held.get(host.first + at)} excluded=${host.excluded} />`)}</ul>`;
}

function Square({ slot, holder, excluded }) {
  if (!holder) {
    return html`<li class="square ${excluded ? "is-off" : ""}" title=${excluded ? `slot ${slot}: not used` : `slot ${slot}: free`}><span class="visually-hidden">Slot ${slot}:
      ${excluded ? "not used" : "free"}</span></li>`;
  }
  const words = `#${holder.number} ${holder.name}, ${holder.phase}`;
  return html`<li class="square is-held ${holder.leaves_at ? "is-leaving" : ""}" title=${`slot ${slot}: ${words}`}><${Link} href=${`/runs/${holder.run}`}
    aria-label=${`Slot ${slot}: run ${words}`}>${holder.number}<//></li>`;
}

function Share({ host }) {
  const used = host.slots - host.free;
  return html`<p class="host-share"><${Bar} value=${host.slots ? used / host.slots : 0} label=${`Used slots of ${host.name || "the pool"}`} tone="running" />
    <span class="number muted small">${used.toLocaleString("en-US")} of ${slotsWord(host.slots)}</span></p>`;
}
