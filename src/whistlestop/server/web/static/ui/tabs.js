// Tabs that are addresses: each is a link, so that a tab can be shared, opened beside, and gone back from.
import { html } from "../lib.js";
import { Link } from "../route.js";

export function Tabs({ label, tabs, current }) {
  return html`<nav class="tabs" aria-label=${label}><ul>${tabs.map((tab) => html`<li key=${tab.id}>
    <${Link} class="tab" href=${tab.href} aria-current=${tab.id === current ? "page" : undefined}>${tab.label}${
      tab.count === undefined || tab.count === null ? null : html`<span class="tab-count">${tab.count}</span>`}<//>
  </li>`)}</ul></nav>`;
}
