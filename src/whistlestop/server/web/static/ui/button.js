// A button. While busy it stays focusable and does nothing; a click twice asks once.
import { html } from "../lib.js";

export function Button({ kind = "plain", busy = false, disabled = false, onClick, title, children, class: more, ...rest }) {
  const click = (event) => {
    if (busy || disabled) event.preventDefault();
    else onClick?.(event);
  };
  return html`<button type="button" class="button is-${kind} ${more ?? ""}" title=${title} disabled=${disabled && !busy}
    aria-busy=${busy ? "true" : undefined} aria-disabled=${busy ? "true" : undefined} onClick=${click} ...${rest}
  >${busy ? html`<span class="spinner-mark" aria-hidden="true"></span>` : null}${children}</button>`;
}
