// Line icons on a grid of 16; they take the colour of the text. Decoration: the words beside them say the same.
import { html } from "../lib.js";

const PATHS = {
  alert: "M8 5.5v3.2M8 11v.2M7.1 2.2 1.6 12a1 1 0 0 0 .9 1.5h11a1 1 0 0 0 .9-1.5L8.9 2.2a1 1 0 0 0-1.8 0z",
  arrow: "M3 8h10M9 4l4 4-4 4",
  bars: "M5.5 3.5v9M10.5 3.5v9",
  bell: "M8 2a4 4 0 0 0-4 4v3L2.8 11.5h10.4L12 9V6a4 4 0 0 0-4-4zM6.7 13.8h2.6",
  check: "M3 8.5 6.5 12 13 4.5",
  chevron: "m6 4 4 4-4 4",
  clock: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 4.6V8l2.3 1.5",
  close: "m4 4 8 8M12 4l-8 8",
  code: "m5 4.5-3.5 3.5L5 11.5M11 4.5l3.5 3.5-3.5 3.5M9.2 3 6.8 13",
  copy: "M6 6h7.5v7.5H6zM10 6V2.5H2.5V10H6",
  down: "m4 6 4 4 4-4",
  download: "M8 2.5v8M4.8 7.5 8 10.7l3.2-3.2M2.8 13.5h10.4",
  edit: "m10.5 3 2.5 2.5-7.5 7.5-3 .5.5-3z",
  fast: "M2.5 3.8 7.5 8l-5 4.2zM8.5 3.8l5 4.2-5 4.2z",
  filter: "M2 3.5h12l-4.6 5.3v4l-2.8 1.4V8.8z",
  hosts: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5v.1M5 11v.1",
  info: "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8zM8 7.2v4M8 4.8V5",
  more: "M8 3.4v.2M8 7.9v.2M8 12.4v.2",
  next: "M3 3.5 10 8l-7 4.5zM12.5 3.5v9",
  note: "M3 2.5h10v11H3zM5.5 5.8h5M5.5 8.3h5M5.5 10.8h3",
  play: "M4.5 3 12.5 8l-8 5z",
  pools: "M2.5 2.5H7V7H2.5zM9 2.5h4.5V7H9zM2.5 9H7v4.5H2.5zM9 9h4.5v4.5H9z",
  plus: "M8 3v10M3 8h10",
  queue: "M2.5 4h11M2.5 8h8M2.5 12h5",
  redo: "M13 3v3.5H9.5M12.6 6.3A5.2 5.2 0 1 0 13.2 9",
  save: "M2.8 2.8h8.4l2 2v8.4H2.8zM5 2.8v3.4h5V2.8M5 13.2V9.5h6v3.7",
  search: "M7 2.5a4.5 4.5 0 1 0 0 9 4.5 4.5 0 0 0 0-9zM10.4 10.4l3.4 3.4",
  signout: "M6.5 2.5h-4v11h4M6.5 8h7.2M10.8 5l3 3-3 3",
  square: "M4 4h8v8H4z",
  training: "M1.8 12.5 5.6 7.8l2.9 2.4 5.7-7M10.4 3.2h3.8V7",
  trash: "M2.8 4.2h10.4M6.2 4V2.5h3.6V4M4 4.4l.7 9.1h6.6l.7-9.1M6.7 7v4M9.3 7v4",
  usage: "M2.5 13.5h11M4 11V8M8 11V3M12 11V5.5",
  up: "m4 10 4-4 4 4",
};

export function Icon({ name, size = 16 }) {
  const heavy = name === "more";
  return html`<svg class="icon" width=${size} height=${size} viewBox="0 0 16 16" aria-hidden="true" focusable="false"
    fill="none" stroke="currentColor" stroke-width=${heavy ? 2.2 : 1.5} stroke-linecap="round" stroke-linejoin="round"
  ><path d=${PATHS[name] ?? PATHS.info} /></svg>`;
}
