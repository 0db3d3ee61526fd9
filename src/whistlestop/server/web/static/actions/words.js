// The dialogs' sentences about time, money and slots, out of what the server measured.
import { clock, credits, day, length } from "../format.js";

export const NAMES = { stop: "Stop", pause: "Pause", kill: "Kill", cancel: "Cancel", delete: "Delete" };

/** "about 2s (median of 5 stops of this phase)" */
export function takes(found, verb) {
  const told = found?.takes;
  if (!told) return found?.frees?.slots ? "not measured here yet" : "at once: it holds no slots";
  const where = told.among === "phase" ? "of this phase" : "on this pool";
  const many = told.count === 1 ? `one ${noun(verb)} ${where}` : `median of ${told.count} ${noun(verb)}s ${where}`;
  return `${short(told.seconds)} (${many})`;
}

export function atMost(found) {
  return found?.at_most_s ? `${length(found.at_most_s)} at most` : "";
}

function noun(verb) {
  return verb === "cancel" ? "kill" : verb;
}

export function short(seconds) {
  return seconds < 10 ? `${seconds < 0.1 ? "under 0.1" : seconds.toFixed(1)}s` : length(seconds);
}

/** "2 slots of pool local; next: #7 (second)" */
export function frees(found) {
  const told = found?.frees;
  if (!told?.slots) return "nothing: it holds no slots now";
  const slots = `${told.slots} slot${told.slots === 1 ? "" : "s"} of pool ${told.pool}`;
  if (!told.next.length) return `${slots}; nobody waits for ${told.slots === 1 ? "it" : "them"}`;
  return `${slots}; next: ${told.next.map((one) => `#${one.number} (${one.name}, ${one.phase})`).join(", ")}`;
}

export function costs(found) {
  if (!found?.per_hour) return "nothing";
  const until = found.takes ? `, about ${credits((found.per_hour * found.takes.seconds) / 3600)} until it has ended` : "";
  return `${credits(found.per_hour)} credits an hour${until}, then nothing`;
}

/** "step 1,200, 3m12s old; 45 steps since" */
export function newest(found) {
  const told = found?.checkpoint;
  if (!told) return "none yet";
  const since = told.steps_since === null ? "" : `; ${told.steps_since.toLocaleString("en-US")} step${told.steps_since === 1 ? "" : "s"} since`;
  return `step ${told.step.toLocaleString("en-US")} of ${told.phase}, ${length(told.age_s)} old${since}`;
}

/** A sentence of the server: its moments by the reader's own calendar and clock. */
export const withTimes = (text) => text.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (iso) => `${day(iso)} ${clock(iso)}`);
