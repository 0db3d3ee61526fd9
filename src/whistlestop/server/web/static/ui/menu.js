// The ⋮ menu: opens in the top layer, so that no table cuts it off. Arrows, Home, End, letters, Escape.
import { html, useId, useLayoutEffect, useRef, useState } from "../lib.js";
import { Link } from "../route.js";
import { Icon } from "./icon.js";

export function Menu({ label, items, children, kind = "quiet" }) {
  const [open, setOpen] = useState(false);
  const button = useRef(null);
  const id = useId();
  const close = (back = true) => {
    setOpen(false);
    if (back) button.current?.focus();
  };
  const key = (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      setOpen(true);
    }
  };
  return html`<span class="menu-host">
    <button ref=${button} type="button" class="button is-${kind} ${children ? "" : "is-icon"}" aria-haspopup="menu"
      aria-expanded=${open ? "true" : "false"} aria-controls=${open ? id : undefined}
      aria-label=${children ? undefined : label} title=${children ? undefined : label}
      onClick=${(event) => { event.stopPropagation(); setOpen(!open); }} onKeyDown=${key}
    >${children ?? html`<${Icon} name="more" />`}</button>
    ${open && html`<${List} id=${id} label=${label} items=${items.filter(Boolean)} anchor=${button} close=${close} />`}
  </span>`;
}

function List({ id, label, items, anchor, close }) {
  const list = useRef(null);
  const entries = () => [...list.current.querySelectorAll("[role=menuitem]")];

  useLayoutEffect(() => {
    const element = list.current;
    element.showPopover?.();
    const place = () => {
      const from = anchor.current.getBoundingClientRect();
      const size = element.getBoundingClientRect();
      const below = from.bottom + 4 + size.height <= innerHeight;
      element.style.top = `${Math.max(8, below ? from.bottom + 4 : from.top - 4 - size.height)}px`;
      element.style.left = `${Math.max(8, Math.min(from.right - size.width, innerWidth - size.width - 8))}px`;
    };
    place();
    entries()[0]?.focus();
    const outside = (event) => {
      if (!element.contains(event.target) && !anchor.current.contains(event.target)) close(false);
    };
    addEventListener("pointerdown", outside, true);
    addEventListener("scroll", place, true);
    addEventListener("resize", place);
    return () => {
      removeEventListener("pointerdown", outside, true);
      removeEventListener("scroll", place, true);
      removeEventListener("resize", place);
    };
  }, []);

  const key = (event) => {
    const all = entries();
    const at = all.indexOf(document.activeElement);
    const to = {
      ArrowDown: (at + 1) % all.length, ArrowUp: (at - 1 + all.length) % all.length, Home: 0, End: all.length - 1,
    }[event.key];
    if (to !== undefined) {
      event.preventDefault();
      all[to]?.focus();
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    } else if (event.key === "Tab") {
      close();
    } else if (event.key.length === 1 && /\S/.test(event.key)) {
      const turned = [...all.slice(at + 1), ...all.slice(0, at + 1)];
      turned.find((entry) => entry.textContent.trim().toLowerCase().startsWith(event.key.toLowerCase()))?.focus();
    }
  };
  return html`<div ref=${list} id=${id} class="menu" role="menu" aria-label=${label} popover="manual" onKeyDown=${key}
    onClick=${(event) => event.stopPropagation()}
  >${items.map((item) => html`<${Item} key=${item.label} item=${item} close=${close} />`)}</div>`;
}

function Item({ item, close }) {
  const inside = html`<span>${item.label}</span>${item.disabled && item.why
    ? html`<span class="menu-why">${item.why}</span>` : null}`;
  const look = `menu-item ${item.danger ? "is-danger" : ""}`;
  if (item.href && !item.disabled) {
    return html`<${Link} class=${look} role="menuitem" tabindex="-1" href=${item.href} onClick=${() => close()}
      >${inside}<//>`;
  }
  const select = () => {
    if (item.disabled) return;
    close();  // first: a dialog that opens next gives the focus back to the menu's button
    item.onSelect?.();
  };
  return html`<button type="button" class=${look} role="menuitem" tabindex="-1"
    aria-disabled=${item.disabled ? "true" : undefined} onClick=${select}>${inside}</button>`;
}
