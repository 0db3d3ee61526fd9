// The YAML: a plain text area with line numbers, so that the browser's own editing, undo and screen readers work.
import { html, useLayoutEffect, useMemo, useRef } from "../lib.js";

export function Editor({ text, problems, onInput, handle, disabled }) {
  const area = useRef(null);
  const gutter = useRef(null);
  const lines = useMemo(() => text.split("\n").length, [text]);
  const wrong = new Map(problems.filter((one) => one.line).map((one) => [one.line, one.text]));
  const follow = () => { gutter.current.scrollTop = area.current.scrollTop; };
  useLayoutEffect(follow, [text]);
  handle.current = {
    goto: (line) => {
      const before = text.split("\n").slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
      const length = text.split("\n")[line - 1]?.length ?? 0;
      area.current.focus();
      area.current.setSelectionRange(before, before + length);
      const height = area.current.scrollHeight / Math.max(1, lines);
      area.current.scrollTop = Math.max(0, (line - 4) * height);
      follow();
    },
  };
  const key = (event) => {
    if (event.key !== "Tab" || event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    if (!event.target.dataset.typed) return;  // who only passes by with the Tab key gets through
    event.preventDefault();
    document.execCommand("insertText", false, "  ");  // the one way that keeps the browser's undo
  };
  return html`<div class="editor">
    <div class="editor-gutter" ref=${gutter} aria-hidden="true"><div class="editor-numbers">${Array.from({ length: lines }, (_, at) => html`<div key=${at}
      class="editor-number ${wrong.has(at + 1) ? "is-wrong" : ""}" title=${wrong.get(at + 1)} data-line=${at + 1}
      onClick=${() => handle.current.goto(at + 1)}>${at + 1}</div>`)}</div></div>
    <textarea ref=${area} class="editor-text" aria-label="whistle.yaml" aria-describedby="spec-problems" spellcheck=${false} autocapitalize="off" wrap="off"
      aria-invalid=${problems.length ? "true" : undefined} readonly=${disabled} value=${text} onScroll=${follow} onKeyDown=${key}
      onInput=${(event) => { event.target.dataset.typed = "1"; onInput(event.target.value); }}
      onBlur=${(event) => { delete event.target.dataset.typed; }}></textarea>
  </div>`;
}
