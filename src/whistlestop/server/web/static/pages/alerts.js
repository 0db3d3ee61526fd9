// Alerts: who is told of what, how each receiver does, and what became of each alert.
import { html, useState } from "../lib.js";
import { api } from "../api.js";
import { mayAdmin, useMe } from "../me.js";
import { Link } from "../route.js";
import { Ago, Button, Dialog, Empty, Field, Icon, ProblemBox, Spinner, toast } from "../ui/index.js";
import { Footer, useAsking } from "../actions/state.js";
import { useListed } from "../lists/listed.js";

const AGAIN = 1000;
const EVERY = 3000;  // what is sent, and what is not taken, changes without a run
const STATES = { sent: ["check", "completed", "taken"], waiting: ["clock", "waiting", "waits"], given_up: ["close", "failed", "given up"] };
const look = async () => {
  const [receivers, deliveries] = await Promise.all([api.get("/alerts/receivers"), api.get("/alerts/deliveries", { limit: 100 })]);
  return { receivers, deliveries };
};

export default function Page() {
  const me = useMe();
  const [found, problem, again] = useListed(look, AGAIN, EVERY);
  const [asked, setAsked] = useState(null);
  const close = () => setAsked(null);
  const admin = mayAdmin(me);
  const test = async (name) => {
    try {
      await api.post(`/alerts/receivers/${encodeURIComponent(name)}/test`);
      toast(`A test is on its way to ${name}. What becomes of it is in the list below.`);
    } catch (refused) {
      toast(refused.message, { kind: "problem" });
    }
    again();
  };
  return html`
    <div class="page-head"><div><h1>Alerts</h1><p>Who is told when a run fails, hangs, or is done. What is not taken is tried again for a week.</p></div>
      ${admin && html`<${Button} kind="primary" onClick=${() => setAsked({ verb: "add" })}><${Icon} name="plus" />Add a receiver…<//>`}</div>
    <${ProblemBox} problem=${problem} />
    ${!found ? !problem && html`<${Spinner} label="Loading the alerts" />` : html`<div class="stack is-wide">
      <section class="stack is-tight"><h2>Receivers</h2>${found.receivers.length
        ? html`<${Receivers} receivers=${found.receivers} admin=${admin} test=${test} remove=${(name) => setAsked({ verb: "remove", name })} />`
        : html`<${Empty} title="Nobody is told of anything"><p>A receiver is a webhook, a mailbox, a chat: whatever apprise knows. ${admin ? "Add one here, or by" : "An admin adds one by"}</p>
          <pre class="command">whistle alerts add NAME URL</pre><//>`}</section>
      ${found.deliveries.length > 0 && html`<section class="stack is-tight"><h2>Sent and waiting</h2><${Deliveries} deliveries=${found.deliveries} /></section>`}
    </div>`}
    ${asked?.verb === "add" && html`<${AddDialog} close=${close} after=${again} />`}
    ${asked?.verb === "remove" && html`<${RemoveDialog} name=${asked.name} close=${close} after=${again} />`}`;
}

function Receivers({ receivers, admin, test, remove }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Receivers"><table class="table hosts-table">
    <thead><tr><th scope="col">Receiver</th><th scope="col">Of</th><th scope="col">Told of</th><th scope="col" class="is-number">Waiting</th>
      <th scope="col">Standing</th>${admin && html`<td></td>`}</tr></thead>
    <tbody>${receivers.map((one) => html`<tr key=${one.name} data-receiver=${one.name}>
      <th scope="row" class="host-cell">${one.name}<span class="standing-why">${one.address}</span></th>
      <td>${one.only_named ? "runs that name it" : one.project ?? "all projects"}</td>
      <td class="alert-kinds muted">${one.on.join(", ")}</td>
      <td class="is-number">${one.waiting || "–"}<span class="alert-word"> waiting</span></td>
      <td class="standing"><${Standing} receiver=${one} /></td>
      ${admin && html`<td class="cell-menu"><span class="row alert-buttons"><${Button} class="is-small" onClick=${() => test(one.name)} aria-label=${`Test the receiver ${one.name}`}>Test<//>
        <${Button} class="is-small" onClick=${() => remove(one.name)} aria-label=${`Remove the receiver ${one.name}`}>Remove…<//></span></td>`}
    </tr>`)}</tbody></table></div>`;
}

function Standing({ receiver }) {
  if (receiver.failing_since) {
    return html`<span class="standing-word is-failed"><${Icon} name="alert" />failing</span> <span class="nowrap">since <${Ago} at=${receiver.failing_since} /></span>
      <span class="standing-why">${receiver.error}</span>`;
  }
  if (!receiver.sent_at) return html`<span class="faint">nothing was sent yet</span>`;
  return html`<span class="standing-word is-completed"><${Icon} name="check" />well</span> <span class="faint nowrap">took one <${Ago} at=${receiver.sent_at} /></span>`;
}

function Deliveries({ deliveries }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Sent and waiting"><table class="table hosts-table">
    <thead><tr><th scope="col">When</th><th scope="col">To</th><th scope="col">Kind</th><th scope="col">What</th><th scope="col" class="is-number">Tries</th><th scope="col">State</th></tr></thead>
    <tbody>${deliveries.map((one) => html`<tr key=${one.id} data-delivery=${one.id}>
      <td class="nowrap muted"><${Ago} at=${one.created_at} /></td><td>${one.receiver}</td><td class="nowrap">${one.kind}</td>
      <td class="alert-title">${one.run ? html`<${Link} href=${`/runs/${one.run}`}>${one.title}<//>` : one.title}</td>
      <td class="is-number">${one.tries || "–"}<span class="alert-word">${one.tries === 1 ? " try" : " tries"}</span></td><td class="standing"><${State} delivery=${one} /></td></tr>`)}</tbody></table></div>`;
}

function State({ delivery }) {
  const [icon, tone, word] = STATES[delivery.state];
  const why = delivery.state === "sent" ? "" : delivery.behind ? `${delivery.behind} before it` : delivery.error;
  return html`<span class="standing-word is-${tone}"><${Icon} name=${icon} />${word}</span>${why && html`<span class="standing-why">${why}</span>`}`;
}

function AddDialog({ close, after }) {
  const [made, setMade] = useState(null);
  const { busy, problem, act } = useAsking(() => {});
  const [name, setName] = useState("");
  const [address, setAddress] = useState("");
  const [project, setProject] = useState("");
  const send = () => act(async () => {
    const answer = await api.post("/alerts/receivers", { name: name.trim(), address: address.trim(), project: project.trim() || null });
    return { ...answer, text: `receiver ${answer.name} is added` };
  }, (answer) => {
    after();
    if (answer.secret) setMade(answer);
    else close();
  });
  if (made) {
    return html`<${Dialog} title=${`Receiver ${made.name}`} onClose=${close} footer=${html`<${Button} kind="primary" onClick=${close}>I have kept it<//>`}>
      <p>What is posted there is signed with this secret. It is not shown again.</p><pre class="command alert-secret">${made.secret}</pre><//>`;
  }
  return html`<${Dialog} title="Add a receiver" onClose=${close} footer=${html`<${Footer} close=${close} confirm="Add" busy=${busy}
    disabled=${!name.trim() || !address.trim()} onConfirm=${send} />`}>
    <${ProblemBox} problem=${problem} />
    <${Field} label="Name"><input type="text" value=${name} maxlength="100" autocomplete="off" onInput=${(event) => setName(event.target.value)} /><//>
    <${Field} label="Address" hint="One of the web is posted to. All else is apprise's: mailto://…, slack://…, and many more. It is a secret, and shown masked."
      ><input type="text" value=${address} maxlength="4000" autocomplete="off" spellcheck="false" onInput=${(event) => setAddress(event.target.value)} /><//>
    <${Field} label="Project (optional)" hint="Without one it is told of all. Which kinds it is told of is chosen by whistle alerts add --on."
      ><input type="text" value=${project} maxlength="100" onInput=${(event) => setProject(event.target.value)} /><//>
  <//>`;
}

function RemoveDialog({ name, close, after }) {
  const { busy, problem, act } = useAsking(close);
  const send = () => act(async () => {
    await api.delete(`/alerts/receivers/${encodeURIComponent(name)}`);
    return { text: `receiver ${name} is removed` };
  }, after);
  return html`<${Dialog} title=${`Remove the receiver ${name}?`} onClose=${close} footer=${html`<${Footer} close=${close} confirm="Remove" kind="danger" busy=${busy} onConfirm=${send} />`}>
    <${ProblemBox} problem=${problem} /><p>It is told of nothing any more. What it has not taken yet is dropped.</p><//>`;
}
