// A status: shape, colour and word, so that none of the three is needed.
import { html } from "../lib.js";

const SHAPES = {
  queued: html`<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.8" />`,
  starting: html`<circle cx="6" cy="6" r="4" fill="none" stroke="currentColor" stroke-width="1.8" opacity="0.35" />
    <path d="M6 2a4 4 0 0 1 0 8" fill="none" stroke="currentColor" stroke-width="1.8" />`,
  running: html`<circle class="pulse" cx="6" cy="6" r="4" fill="currentColor" />
    <circle cx="6" cy="6" r="4" fill="currentColor" />`,
  waiting: html`<path d="M3.2 2h2v8h-2zM6.8 2h2v8h-2z" fill="currentColor" />`,
  completed: html`<path d="M1.8 6.4 4.8 9.4 10.3 3" fill="none" stroke="currentColor" stroke-width="2" />`,
  failed: html`<path d="m2.3 2.3 7.4 7.4M9.7 2.3 2.3 9.7" fill="none" stroke="currentColor" stroke-width="2" />`,
  killed: html`<path d="M2 2h8v8H2z" fill="currentColor" />`,
  pending: html`<circle cx="6" cy="6" r="1.8" fill="currentColor" />`,
  skipped: html`<path d="M2 6h8" fill="none" stroke="currentColor" stroke-width="2" />`,
  lost: html`<path d="M4 4.2A2 2 0 1 1 6.6 6.2L6 7M6 9.6v.1" fill="none" stroke="currentColor" stroke-width="1.6" />`,
};
// Attempts and phases have words of their own; each looks like the run's status that it is closest to.
const LIKE = { started: "running", aborted: "killed", preempted: "waiting" };
const COLOURS = { pending: "queued", skipped: "queued", lost: "failed", ...LIKE };
const ENDED = new Set(["completed", "failed", "killed"]);

/** The word that people read: what is asked for and not yet proven is said, too. */
export function statusWord({ status, recovering, requested }) {
  if (requested && !ENDED.has(status)) return `${status}, ${requested === "kill" ? "killing" : "pausing"}`;
  return recovering && !ENDED.has(status) ? "recovering" : status;
}

/** The shape alone. The word has to be near. */
export function StatusMark({ status }) {
  return html`<svg class="status-mark is-${COLOURS[status] ?? status}" width="12" height="12" viewBox="0 0 12 12"
    aria-hidden="true" focusable="false">${SHAPES[LIKE[status] ?? status] ?? SHAPES.pending}</svg>`;
}

export function Status({ status, recovering, requested }) {
  return html`<span class="status is-${COLOURS[status] ?? status}" data-status=${status}
    ><${StatusMark} status=${status} /><span class="status-word">${statusWord({ status, recovering, requested })}</span
  ></span>`;
}
