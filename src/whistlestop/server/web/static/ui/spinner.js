// Something is on its way. The words are for everybody: a wheel alone says nothing.
import { html } from "../lib.js";

export function Spinner({ label = "Loading" }) {
  return html`<p class="spinner" role="status"><span class="spinner-mark" aria-hidden="true"></span>${label}…</p>`;
}
