// Kinds of time: their order, their words and their colours, the same everywhere.
import { length } from "../format.js";

export const KINDS = [
  ["productive", "productive"], ["saving", "saving"], ["starting", "starting"], ["stopping", "stopping"], ["redone", "done again"], ["stalled", "stalled"],
];

export const kindWord = (kind) => (kind === "queued" ? "in the queue" : KINDS.find(([id]) => id === kind)?.[1] ?? kind);

export function share(fraction) {
  if (!fraction) return "0%";
  return fraction < 0.01 ? "under 1%" : `${Math.round(fraction * 100)}%`;
}

/** 42s, 3m12s, 3.4h, 1,234h */
export function hours(value) {
  return value < 1 ? length(value * 3600) : `${value.toLocaleString("en-US", { maximumFractionDigits: value < 100 ? 1 : 0 })}h`;
}
