// What the run page says, in one place. Pure.
import { clock, day } from "../format.js";

export const count = (n) => (n ?? 0).toLocaleString("en-US");
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** first, second, third, 4th, 21st, 111th */
export function ordinal(n) {
  const teen = Math.floor((n % 100) / 10) === 1;
  return ["first", "second", "third"][n - 1] ?? `${n}${(teen ? null : ["st", "nd", "rd"][(n % 10) - 1]) ?? "th"}`;
}

/** 2026-03-01 14:03:59 */
export const moment = (iso) => (iso ? `${day(iso)} ${clock(iso)}` : "–");

/** A sentence of the server: its times as the reader's own clock says them. */
export const withClocks = (text) => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (iso) => clock(iso));

export const RUNGS = ["flag", "interrupt", "terminate", "kill"];
export const RUNG_DOES = {
  flag: "asked to end at its next step", interrupt: "SIGINT sent", terminate: "SIGTERM sent",
  kill: "the whole process tree is being killed",
};
export const RUNG_NEXT = { flag: "it is asked", interrupt: "SIGINT", terminate: "SIGTERM", kill: "the kill" };

export const STAGES = ["queued", "allocating", "preparing", "starting", "training"];
export const STAGE_SAYS = {
  queued: "waits for slots", allocating: "slots are held, the runner starts",
  preparing: "code and checkpoint are laid out", starting: "the program loads", training: "the loop runs",
};

export const STOP_WORDS = {
  manually_stopped: "manually stopped", early_stopped: "early stopped",
  privacy_budget_exhausted: "privacy budget exhausted", threshold_reached: "threshold reached",
  time_limit: "time limit", budget_exhausted: "budget exhausted", deadline: "deadline",
  non_finite_metric: "non-finite metric", custom: "custom rule", all_steps_done: "finished", unknown: "unknown",
};

/** A stop reason's own words, and the general one where they do not contain it. */
export function stopWords(reason) {
  const word = STOP_WORDS[reason.reason] ?? reason.reason;
  const said = reason.text ?? "";
  const text = said.startsWith(word) ? said.slice(word.length).replace(/^[\s:,]+/, "") : said;  // "manually stopped by mia"
  return { word, text: text || null };
}

/** The train phase that ended before its last step, and why; null where all of them went to their end. */
export function stoppedEarly(run) {
  if (run.status !== "completed") return null;
  for (const phase of run.phases) {
    const { step, total } = phase.progress;
    const reason = phase.stop_reasons.find((one) => one.decisive) ?? phase.stop_reasons[0];
    if (phase.kind !== "train" || !total || step >= total || (reason && reason.reason === "all_steps_done")) continue;
    const { word, text } = reason ? stopWords(reason) : { word: "stopped early", text: null };
    return { phase: phase.name, share: step / total, steps: `${count(step)} of ${count(total)} steps`, why: text ? `${word}: ${text}` : word };
  }
  return null;
}

/** 42 ms, 1.4s: a start is quick, and its stages are told apart by tenths. */
export function brief(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  return whole < 3600 ? `${Math.floor(whole / 60)}m${String(whole % 60).padStart(2, "0")}s`
    : `${Math.floor(whole / 3600)}h${String(Math.floor((whole % 3600) / 60)).padStart(2, "0")}m`;
}

/** A value as the program has it: text in quotes, so that "1" is not 1. */
export function value(given) {
  if (given === null || given === undefined) return "–";
  return typeof given === "string" ? `"${given}"` : String(given);
}

export function changeName(change) {
  return change.name === "total" ? "steps" : change.name.replace(/^param:/, "");
}

/** Who asked for what ended, paused or stopped it: the newest such event. */
export function lastRequest(events, kinds, phase) {
  for (let at = events.length - 1; at >= 0; at -= 1) {
    const event = events[at];
    if (kinds.includes(event.kind) && (!phase || event.phase === phase)) return event;
  }
  return null;
}

export function allAttempts(run) {
  return run.phases.flatMap((phase) => phase.attempts.map((attempt) => ({ ...attempt, phase: phase.name, kind: phase.kind })))
    .sort((one, other) => one.number - other.number);
}

export const isAlive = (attempt) => attempt.status === "started";
export const isActive = (phase) => phase.attempts.some(isAlive);

/** The live attempt whose runner has fallen silent, if any. */
export function unreachable(run) {
  return allAttempts(run).find((attempt) => isAlive(attempt) && !attempt.reachable) ?? null;
}

/** Seconds an attempt has taken as of `now` (Date). */
export function secondsOf(attempt, now = Date.now()) {
  const end = attempt.ended_at ? Date.parse(attempt.ended_at) : now;
  return Math.max(0, (end - Date.parse(attempt.started_at)) / 1000);
}
