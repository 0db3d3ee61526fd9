// Nothing here yet: what would be, and how it gets here.
import { html } from "../lib.js";

export function Empty({ title, children }) {
  return html`<div class="empty"><p class="empty-title">${title}</p><div class="empty-text">${children}</div></div>`;
}
