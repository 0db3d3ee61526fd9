// The form beside the YAML: every value with its place in it, and its mistake where it stands.
import { html } from "../lib.js";
import { Field } from "../ui/index.js";

/** `values`: what was typed and is not in the answer yet, by path. */
export function Fields({ fields, values, onInput, goto, off }) {
  const groups = [...new Set(fields.map((field) => field.group))];
  return html`${groups.map((group) => html`<fieldset key=${group} class="group" disabled=${off}>
    <legend>${group ? html`Phase <strong>${group}</strong>` : "Run"}</legend>
    <div class="group-fields">${fields.filter((field) => field.group === group).map((field) => html`<${One} key=${field.path} field=${field}
      value=${values[field.path] ?? field.value} onInput=${(value) => onInput(field, value)} goto=${goto} />`)}</div>
    ${env(fields, group) && html`<${AddVariable} at=${env(fields, group)} onInput=${onInput} known=${fields} />`}
  </fieldset>`)}`;
}

function env(fields, group) {
  const command = fields.find((field) => field.group === group && /(^|\.)command$/.test(field.path));
  return command ? command.path.replace(/command$/, "env") : null;
}

function One({ field, value, onInput, goto }) {
  const wide = /(^|\.)(command|stop_when)$/.test(field.path);
  const error = field.problem ? `${field.problem}${field.hint ? ` (${field.hint})` : ""}` : null;
  return html`<div class="group-field ${wide ? "is-wide" : ""} ${isVariable(field) ? "is-variable" : ""}" data-path=${field.path}><${Field} label=${field.label} error=${error}
    hint=${field.fixed ? "change it in the YAML" : null}>${control(field, value, onInput)}<//>
    ${field.line && html`<button type="button" class="place" aria-label=${`${field.label}: go to line ${field.line}`}
      onClick=${() => goto(field.line)}>line ${field.line}</button>`}</div>`;
}

function isVariable(field) {
  return /(^|\.)env\.[^.]+$/.test(field.path);
}

function control(field, value, onInput) {
  if (field.fixed) return html`<input type="text" class="mono" readonly value=${value} placeholder=${field.default} />`;
  if (field.kind === "choice") {
    return html`<select value=${value || field.default} onChange=${(event) => onInput(event.target.value)}>${field.choices.map((choice) => html`<option
      key=${choice} value=${choice}>${choice}</option>`)}</select>`;
  }
  if (/(^|\.)command$/.test(field.path)) {
    return html`<textarea class="mono" spellcheck=${false} rows=${Math.min(6, value.split("\n").length)} value=${value}
      onInput=${(event) => onInput(event.target.value)}></textarea>`;
  }
  return html`<input type="text" class=${field.kind === "number" ? "" : "mono"} inputmode=${field.kind === "number" ? "decimal" : undefined}
    value=${value} placeholder=${field.default} spellcheck=${false} onInput=${(event) => onInput(event.target.value)} />`;
}

function AddVariable({ at, onInput, known }) {
  const add = (event) => {
    if (event.key && event.key !== "Enter") return;
    event.preventDefault();
    const input = event.target.closest(".add-variable").querySelector("input");
    const name = input.value.trim();
    if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name) || known.some((field) => field.path === `${at}.${name}`)) return;
    onInput({ path: `${at}.${name}`, kind: "text" }, "");
    input.value = "";
  };
  return html`<div class="add-variable row"><input type="text" class="mono" placeholder="VARIABLE" aria-label="Name of a new environment variable"
    spellcheck=${false} maxlength="200" onKeyDown=${(event) => { if (event.key === "Enter") add(event); }} />
    <button type="button" class="button is-plain is-small" onClick=${add}>Add variable</button></div>`;
}

/** A field's change in the words of `--set`. */
export function change(field, value) {
  const text = value.trim();
  if (text === "" && !isVariable(field) && !/(^|\.)(name|command)$/.test(field.path)) return `${field.path}=null`;
  const delicate = field.kind !== "list" && (/^[[{"']/.test(text) || value !== text || text === "");
  return `${field.path}=${delicate ? JSON.stringify(value) : text}`;
}
