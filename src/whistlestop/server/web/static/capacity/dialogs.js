// What an admin changes: a pool's size and price, and whether a host is used. Each says what it means before.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { Dialog, Field, ProblemBox } from "../ui/index.js";
import { Footer, NoteField, useAsking } from "../actions/state.js";

const SPANS = [["", "until somebody readmits it"], ["3600", "for an hour"], ["14400", "for 4 hours"], ["86400", "for a day"], ["604800", "for a week"]];

export function PoolDialog({ pool, close, after }) {
  const { busy, problem, act } = useAsking(close);
  const [slots, setSlots] = useState(String(pool.slots));
  const [price, setPrice] = useState(String(pool.price));
  const wrong = !/^\d{1,6}$/.test(slots.trim()) ? "a whole number, 0 for away" : null;
  const odd = !/^\d+(\.\d+)?$/.test(price.trim()) ? "a number of credits" : null;
  const send = () => act(async () => {
    await api.patch(`/pools/${encodeURIComponent(pool.name)}`, { slots: Number(slots), price: Number(price) });
    return { text: `pool ${pool.name} has ${Number(slots)} slots at ${Number(price)} credits` };
  }, after);
  return html`<${Dialog} title=${`Change pool ${pool.name}`} onClose=${close} footer=${html`<${Footer} close=${close} confirm="Change" busy=${busy}
    disabled=${Boolean(wrong || odd)} onConfirm=${send} />`}>
    <${ProblemBox} problem=${problem} />
    <${Field} label="Slots" hint="0: it is away. What runs there runs on, also where it is made smaller." error=${wrong}>
      <input type="text" inputmode="numeric" value=${slots} onInput=${(event) => setSlots(event.target.value)} /><//>
    <${Field} label="Credits per slot-hour" hint="For attempts that start from now on." error=${odd}>
      <input type="text" inputmode="decimal" value=${price} onInput=${(event) => setPrice(event.target.value)} /><//>
    <p class="muted small">The rest of it is changed by <code>whistle pools set ${pool.name}</code>, or by a file.</p>
  <//>`;
}

const address = (host) => `/hosts/${encodeURIComponent(host.pool)}/${encodeURIComponent(host.name)}`;

export function ExcludeDialog({ host, close, after }) {
  const { busy, problem, act } = useAsking(close);
  const [span, setSpan] = useState("");
  const [note, setNote] = useState("");
  const send = () => act(() => api.post(`${address(host)}/exclude`, { for_s: span ? Number(span) : null, note }), after);
  return html`<${Dialog} title=${`Exclude ${host.name}`} tone="danger" onClose=${close} footer=${html`<${Footer} close=${close} kind="danger"
    confirm="Exclude" busy=${busy} onConfirm=${send} />`}>
    <p class="question">Nothing new is placed on this host of pool ${host.pool}. ${host.running
      ? `What runs there runs on: ${host.running} attempt${host.running === 1 ? "" : "s"}.` : "Nothing runs there now."}</p>
    <${ProblemBox} problem=${problem} />
    <${Field} label="How long"><select value=${span} onChange=${(event) => setSpan(event.target.value)}>${SPANS.map(([seconds, words]) => html`<option
      key=${seconds} value=${seconds}>${words}</option>`)}</select><//>
    <${NoteField} value=${note} onInput=${setNote} hint="Shown with the host." />
  <//>`;
}

export function ReadmitDialog({ host, close, after }) {
  const { busy, problem, act } = useAsking(close);
  const send = () => act(() => api.post(`${address(host)}/readmit`, {}), after);
  return html`<${Dialog} title=${`Readmit ${host.name}`} onClose=${close} footer=${html`<${Footer} close=${close} confirm="Readmit" busy=${busy} onConfirm=${send} />`}>
    <p class="question">Runs may be placed on this host of pool ${host.pool} again. Its record begins anew: what ended badly there before counts no more.</p>
    <${ProblemBox} problem=${problem} />
  <//>`;
}
