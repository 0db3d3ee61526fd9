// What no durable checkpoint holds: it would be lost if the machine went this moment. It goes on by itself while it trains.
import { html } from "../lib.js";
import { credits, length } from "../format.js";
import { Icon, Ticking } from "../ui/index.js";
import { useCountdown } from "./header.js";
import { count, plural } from "./words.js";

/** `told`: performance.now() when the run was told. */
export function AtRisk({ phase, told, named = false }) {
  const risk = phase.at_risk;
  if (!risk || phase.status !== "running") return null;
  const steps = Math.max(0, phase.progress.step - risk.from_step);
  const later = Math.max(0, performance.now() - told) / 1000;
  return html`<p class="at-risk small" data-risk=${phase.name}><${Icon} name="save" size=${13} /><span>${named && html`<strong>${phase.name}</strong>: `}At
    risk now: ${plural(steps, "step")}, <${Ticking} seconds=${risk.seconds} since=${told} going=${true} />,
    ${" "}${credits(risk.credits + (later * risk.per_hour) / 3600)} credits <span class="muted">(${
      risk.step === null ? "there is no checkpoint yet" : `since the checkpoint at step ${count(risk.step)}`})</span></span></p>`;
}

/** When it saves by itself the next time, and why then. `coming`: as the server reckons. */
export function NextSave({ phase, coming, named = false }) {
  const left = useCountdown(coming?.at);
  if (!coming || phase.status !== "running") return null;
  const due = [];
  if (coming.step !== null) due.push(coming.step > phase.progress.step ? `at step ${count(coming.step)}` : "due now");
  if (coming.at) due.push(left > 0 ? `in about ${length(left)}` : "due now");
  return html`<p class="at-risk small" data-next-save=${phase.name}><${Icon} name="clock" size=${13} /><span>${named
    && html`<strong>${phase.name}</strong>: `}Next save: ${due.includes("due now") ? "due now" : due.join(" or ")} <span class="muted">(${
    coming.why})</span></span></p>`;
}

/** The last save that failed and that no checkpoint of its phase has followed. */
export function failedSave(events) {
  const safe = new Set();
  for (let at = events.length - 1; at >= 0; at -= 1) {
    const event = events[at];
    if (event.kind === "checkpoint") safe.add(event.phase);
    if (event.kind === "save_failed" && !safe.has(event.phase)) return event;
  }
  return null;
}
