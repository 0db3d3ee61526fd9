// Stop, pause, kill and cancel side by side, so that nobody takes one for another.
import { html, useEffect, useRef } from "../lib.js";
import { NAMES, takes } from "./words.js";

export const FOUR = ["stop", "pause", "kill", "cancel"];

const ROWS = [
  { id: "in", label: "In a word" },
  { id: "kept", label: "Kept" },
  { id: "lost", label: "Lost" },
  { id: "on", label: "Goes on" },
  { id: "undo", label: "Can be undone" },
  { id: "long", label: "How long" },
];

/** `known`: consequences by verb; `null` while they are asked for. */
export function Compare({ known, verb, phase, later, choose }) {
  const box = useRef(null);
  useEffect(() => {  // on a phone only two of the four fit: the chosen one is one of them; once the dialog is shown, and has a size
    const chosen = box.current.querySelector("th.is-chosen");
    const beside = box.current.querySelector("thead td").offsetWidth;
    if (chosen) box.current.scrollLeft = chosen.offsetLeft + chosen.offsetWidth / 2 - (box.current.clientWidth + beside) / 2;
  }, [verb]);
  return html`<div ref=${box} class="scroll compare-box" tabindex="0" role="region" aria-label="Stop, pause, kill and cancel compared">
    <table class="table compare">
      <caption class="visually-hidden">Stop, pause, kill and cancel compared</caption>
      <thead><tr><td></td>${FOUR.map((one) => html`<th key=${one} scope="col" class=${one === verb ? "is-chosen" : ""}>
        <button type="button" class="compare-verb" aria-pressed=${one === verb ? "true" : "false"}
          disabled=${Boolean(known[one]?.refused)} title=${known[one]?.refused ?? undefined}
          onClick=${() => choose(one)}>${NAMES[one]}</button></th>`)}</tr></thead>
      <tbody>${ROWS.map((row) => html`<tr key=${row.id}><th scope="row">${row.label}</th>${FOUR.map((one) => html`<td
        key=${one} class="${one === verb ? "is-chosen" : ""} ${row.id === "lost" && hurts(one, known[one]) ? "is-hurt" : ""}"
        >${cellOf(row.id, one, known[one], phase, later)}</td>`)}</tr>`)}</tbody>
    </table>
  </div>`;
}

function hurts(verb, found) {
  return verb === "cancel" || (verb === "kill" && found?.checkpoint?.steps_since !== 0);
}

function cellOf(row, verb, found, phase, later) {
  const count = (steps) => `${steps.toLocaleString("en-US")} step${steps === 1 ? "" : "s"}`;
  const since = found?.checkpoint?.steps_since;
  const texts = {
    in: {
      stop: `finish ${phase ?? "the phase"} ${later ? "as soon as it begins" : "now"}`, pause: "come back later", kill: "end it now", cancel: "end it and discard",
    },
    kept: {
      stop: "its result, every checkpoint", pause: "everything, in a fresh checkpoint",
      kill: found?.checkpoint ? `checkpoints, newest at step ${found.checkpoint.step.toLocaleString("en-US")}` : "metrics and logs",
      cancel: "metrics and logs",
    },
    lost: {
      stop: "only steps not yet trained", pause: taskLoss(found),
      kill: found?.checkpoint ? (since ? `${count(since)} since it` : "nothing that was saved") : "all it has trained",
      cancel: "all checkpoints, all it has trained",
    },
    on: {
      stop: "code behind the loop, later phases", pause: "nothing until resumed", kill: "nothing", cancel: "nothing",
    },
    undo: {
      stop: "no; a new run can continue", pause: "yes, resume",
      kill: found?.checkpoint ? "no; a new run can continue" : "no", cancel: "no",
    },
    long: Object.fromEntries(FOUR.map((one) => [one, found ? takes(found, one) : "…"])),
  };
  return found?.refused ? "–" : texts[row][verb];
}

function taskLoss(found) {
  const tasks = (found?.lost ?? []).filter((text) => text !== "nothing");
  return tasks.length ? tasks.join("; ") : "nothing";
}
