// Tabs that are addresses: each is a link, so that a tab can be shared, opened beside, and gone back from.
import { html, useLayoutEffect, useRef } from "../lib.js";
import { Link } from "../route.js";

export function Tabs({ label, tabs, current }) {
  const bar = useRef(null);
  useLayoutEffect(() => {  // on a phone not all of them fit: the one that is open is among those that are seen
    const [box, open] = [bar.current, bar.current?.querySelector("[aria-current]")];
    if (open) box.scrollLeft += open.getBoundingClientRect().left - box.getBoundingClientRect().left - (box.clientWidth - open.offsetWidth) / 2;
  }, [current]);
  return html`<nav class="tabs" aria-label=${label} ref=${bar}><ul>${tabs.map((tab) => html`<li key=${tab.id}>
    <${Link} class="tab" href=${tab.href} aria-current=${tab.id === current ? "page" : undefined}>${tab.label}${
      tab.count === undefined || tab.count === null ? null : html`<span class="tab-count">${tab.count}</span>`}<//>
  </li>`)}</ul></nav>`;
}
