// A control with its label, its hint and its mistake, joined for screen readers.
import { cloneElement, html, toChildArray, useId } from "../lib.js";

export function Field({ label, hint, error, children }) {
  const id = useId();
  const described = [hint && `${id}-hint`, error && `${id}-error`].filter(Boolean).join(" ") || undefined;
  const [control, ...others] = toChildArray(children);
  const joined = control?.type
    ? cloneElement(control, {
        id: control.props.id ?? id, "aria-describedby": described, "aria-invalid": error ? "true" : undefined,
      })
    : control;
  return html`<div class="field ${error ? "has-error" : ""}">
    <label for=${control?.props?.id ?? id}>${label}</label>
    ${joined}${others}
    ${hint && html`<p class="field-hint" id="${id}-hint">${hint}</p>`}
    ${error && html`<p class="field-error" id="${id}-error">${error}</p>`}
  </div>`;
}
