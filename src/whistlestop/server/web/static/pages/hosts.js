// Hosts: the machines of the pools, what ended badly on them, and which are not used.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { clock, day } from "../format.js";
import { mayAdmin, useMe } from "../me.js";
import { Link } from "../route.js";
import { Ago, Button, Empty, Icon, ProblemBox, Spinner } from "../ui/index.js";
import { ExcludeDialog, ReadmitDialog } from "../capacity/dialogs.js";
import { withTimes } from "../actions/words.js";
import { useListed } from "../lists/listed.js";

const AGAIN = 1000;
const EVERY = 10_000;
const BAD = 3;  // ends in a row, at first

export default function Page() {
  const me = useMe();
  const [hosts, problem, again] = useListed(() => api.get("/hosts"), AGAIN, EVERY);
  const [asked, setAsked] = useState(null);
  const off = (hosts ?? []).filter((host) => host.excluded).length;
  const close = () => setAsked(null);
  return html`
    <div class="page-head"><div><h1>Hosts</h1>${hosts && hosts.length > 0 && html`<p>${hosts.length.toLocaleString("en-US")} host${hosts.length === 1 ? "" : "s"}, ${
      off ? `${off} not used` : "all in use"}. A host that fails again and again is not used for a while; what counts against it fades.</p>`}</div></div>
    <${ProblemBox} problem=${problem} />
    ${!hosts ? !problem && html`<${Spinner} label="Loading the hosts" />`
      : hosts.length ? html`<${List} hosts=${hosts} act=${mayAdmin(me) ? (verb, host) => setAsked({ verb, host }) : null} />`
        : html`<${Empty} title="No hosts yet"><p>A host is known when something has run there, or when its pool names it:</p>
          <pre class="command">whistle pools add lab --host node-1:4 --host node-2:4</pre><//>`}
    ${asked?.verb === "exclude" && html`<${ExcludeDialog} host=${asked.host} close=${close} after=${again} />`}
    ${asked?.verb === "readmit" && html`<${ReadmitDialog} host=${asked.host} close=${close} after=${again} />`}`;
}

function List({ hosts, act }) {
  return html`<div class="scroll hosts-box" tabindex="0" role="region" aria-label="Hosts"><table class="table hosts-table">
    <thead><tr><th scope="col">Host</th><th scope="col">Pool</th><th scope="col" class="is-number">Slots</th><th scope="col" class="is-number">Running</th>
      <th scope="col">Standing</th><th scope="col">Bad ends</th>${act && html`<td></td>`}</tr></thead>
    <tbody>${hosts.map((host) => html`<${One} key=${`${host.pool}/${host.name}`} host=${host} act=${act} />`)}</tbody>
  </table></div>`;
}

function One({ host, act }) {
  return html`<tr data-host=${`${host.pool}/${host.name}`}>
    <th scope="row" class="host-cell">${host.name}</th><td class="cell-pool muted">${host.pool}</td>
    <td class="is-number cell-slots">${host.slots === null ? "–" : host.excluded ? `${host.slots - host.free} of ${host.slots} used` : `${host.free} of ${host.slots} free`}</td>
    <td class="is-number cell-running">${host.running || "–"}</td>
    <td class="standing"><${Standing} host=${host} /></td>
    <td class="bad-ends"><${BadEnds} host=${host} /></td>
    ${act && html`<td class="cell-menu">${host.slots !== null && (host.excluded
      ? html`<${Button} class="is-small" onClick=${() => act("readmit", host)} aria-label=${`Readmit host ${host.name} of ${host.pool}`}>Readmit…<//>`
      : html`<${Button} class="is-small" onClick=${() => act("exclude", host)} aria-label=${`Exclude host ${host.name} of ${host.pool}`}>Exclude…<//>`)}</td>`}
  </tr>`;
}

function Standing({ host }) {
  if (!host.excluded) {
    return html`<span class="standing-word is-completed"><${Icon} name="check" />in use</span>${host.why && html`<span class="standing-why">${withTimes(host.why)}</span>`}`;
  }
  const until = host.excluded_until ? `until ${day(host.excluded_until)} ${clock(host.excluded_until)}` : "until it is readmitted";
  const why = host.excluded_by ? `by ${host.excluded_by}${host.note ? `: ${host.note}` : ""}` : withTimes(host.why.replace(/, until \S+$/, ""));
  return html`<span class="standing-word is-failed"><${Icon} name="close" />excluded</span> <span class="nowrap">${until}</span><span class="standing-why">${why}</span>`;
}

function BadEnds({ host }) {
  const [all, setAll] = useState(false);
  if (!host.bad.length) return html`<span class="faint">${!host.attempts ? "nothing has ended there in a week" : host.attempts === 1 ? "1 end in a week, not bad"
    : `${host.attempts.toLocaleString("en-US")} ends in a week, none bad`}</span>`;
  const shown = all ? host.bad : host.bad.slice(0, BAD);
  return html`<ul>${shown.map((end) => html`<li key=${`${end.run} ${end.at}`}><${Link} href=${`/runs/${end.run}?tab=attempts`}>#${end.number} ${end.name}<//>
    <span class="muted"> ${end.text}, </span><span class="faint nowrap"><${Ago} at=${end.at} /></span></li>`)}</ul>
    ${host.bad.length > BAD && html`<button type="button" class="button is-quiet is-small" aria-expanded=${all ? "true" : "false"} onClick=${() => setAll(!all)}>${
      all ? "Fewer" : `All ${host.bad.length}`}</button>`}`;
}
