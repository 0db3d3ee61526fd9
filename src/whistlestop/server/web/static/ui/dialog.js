// A native modal dialog: the browser keeps the focus inside, Escape closes, and only the body scrolls.
import { html, useId, useLayoutEffect, useRef } from "../lib.js";
import { Icon } from "./icon.js";

const FIELD = ".dialog-body :is(input, textarea, select):not(:disabled), .dialog-foot button:not(:disabled)";
const REACHED = "a, button, input, select, textarea, [tabindex]";
const SOON = 10_000;  // milliseconds in which what was confirmed may take the opener away

/** A dialog that is to be read first (wide, or dangerous) begins at its heading, the others at their first field. */
export function Dialog({ title, tone = "plain", onClose, children, footer, wide = false }) {
  const dialog = useRef(null);
  const id = useId();
  useLayoutEffect(() => {
    const element = dialog.current;
    const opener = document.activeElement;
    element.showModal();
    const reads = wide || tone === "danger";
    if (!element.querySelector("[autofocus]")) ((reads ? null : element.querySelector(FIELD)) ?? element.querySelector("h2")).focus();
    const body = element.querySelector(".dialog-body");
    body.scrollTop = 0;
    if (!body.querySelector(REACHED)) body.tabIndex = 0;  // else no key could scroll it
    return () => {
      element.close();
      giveBack(opener);
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
      <h2 id=${id} tabindex="-1">${title}</h2>
      <button type="button" class="button is-quiet is-icon" aria-label="Close" onClick=${() => onClose?.()}
        ><${Icon} name="close" /></button>
    </header>
    <div class="dialog-body">${children}</div>
    ${footer && html`<footer class="dialog-foot">${footer}</footer>`}
  </dialog>`;
}

/** To the opener; where it is gone or disabled, now or by what was asked for, to the page's heading: never to nothing. */
function giveBack(opener) {
  const usable = () => opener?.isConnected && opener !== document.body && !opener.disabled;
  if (usable()) opener.focus();
  if (document.activeElement !== opener || !usable()) return toHeading();
  const watch = new MutationObserver(() => {
    const at = document.activeElement;
    if (at !== opener && at !== document.body && at !== null) watch.disconnect();  // somebody has gone on
    else if (!usable()) {
      watch.disconnect();
      toHeading();
    }
  });
  watch.observe(document.body, { subtree: true, childList: true, attributes: true, attributeFilter: ["disabled"] });
  setTimeout(() => watch.disconnect(), SOON);
  return undefined;
}

function toHeading() {
  if (document.querySelector("dialog[open]")) return;  // another one has taken over
  const target = document.querySelector("main h1") ?? document.querySelector("main");
  if (!target) return;
  if (!target.hasAttribute("tabindex")) target.tabIndex = -1;
  target.focus({ preventScroll: true });
}
