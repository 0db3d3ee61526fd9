// A native modal dialog: the browser keeps the focus inside and gives it back, and Escape closes.
import { html, useId, useLayoutEffect, useRef } from "../lib.js";
import { Icon } from "./icon.js";

const FIRST = ".dialog-body :is(input, textarea, select):not(:disabled), .dialog-foot button:not(:disabled)";

export function Dialog({ title, tone = "plain", onClose, children, footer, wide = false }) {
  const dialog = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element.showModal();
    // What one came for, not the way out. Whoever knows better says autofocus.
    if (!element.querySelector("[autofocus]")) element.querySelector(FIRST)?.focus();
    return () => {
      element.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const cancel = (event) => {
    event.preventDefault();  // the owner decides: it takes the dialog away, or says why not
    onClose?.();
  };
  return html`<dialog ref=${dialog} class="dialog is-${tone} ${wide ? "is-wide" : ""}" aria-labelledby=${id}
    onCancel=${cancel}
  >
    <header class="dialog-head">
      <h2 id=${id}>${title}</h2>
      <button type="button" class="button is-quiet is-icon" aria-label="Close" onClick=${() => onClose?.()}
        ><${Icon} name="close" /></button>
    </header>
    <div class="dialog-body">${children}</div>
    ${footer && html`<footer class="dialog-foot">${footer}</footer>`}
  </dialog>`;
}
