// Colours of the charts from the stylesheet; read again when light turns to dark. Dashes tell curves apart without them.
import { cell } from "../lib.js";

const DASHES = [[], [7, 4], [2, 3], [9, 3, 2, 3], [4, 2], [12, 4]];
export const MOST_RUNS = DASHES.length;

function read() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    ink: value("--ink"), quiet: value("--ink-3"), grid: value("--line"), paper: value("--paper"), bad: value("--failed"),
    font: `12px ${value("--font") || "system-ui"}`,
    curves: DASHES.map((_, at) => value(`--curve-${at + 1}`)),
  };
}

const colours = cell(null);
let listening = false;

export function useTheme() {
  if (!listening) {
    listening = true;
    colours.set(read());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => colours.set(read()));
  }
  return colours.use();
}

export const dashOf = (at) => DASHES[at % DASHES.length];
