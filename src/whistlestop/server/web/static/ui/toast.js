// Short answers to what one did: shown for a while, told to screen readers, never in the way of the focus.
import { cell, html } from "../lib.js";
import { Icon } from "./icon.js";

const toasts = cell([]);
let count = 0;

export function toast(text, { kind = "done" } = {}) {
  const one = { id: (count += 1), text, kind };
  toasts.set([...toasts.get().slice(-4), one]);
  setTimeout(() => dismiss(one.id), kind === "problem" ? 12_000 : 6_000);
}

function dismiss(id) {
  toasts.set(toasts.get().filter((one) => one.id !== id));
}

/** app.js mounts it once. Both regions are always there: a region that comes with its text is not read out. */
export function Toasts() {
  const all = toasts.use();
  const of = (kind) => all.filter((one) => one.kind === kind).map((one) => html`<div class="toast is-${kind}" key=${one.id}>
    <${Icon} name=${kind === "problem" ? "alert" : "check"} /><span>${one.text}</span>
    <button type="button" class="button is-quiet is-icon" aria-label="Dismiss" onClick=${() => dismiss(one.id)}
      ><${Icon} name="close" /></button>
  </div>`);
  return html`<div class="toasts">
    <div role="status" aria-live="polite">${of("done")}</div>
    <div role="alert" aria-live="assertive">${of("problem")}</div>
  </div>`;
}
