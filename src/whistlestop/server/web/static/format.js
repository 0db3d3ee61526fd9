// Numbers, times and amounts as people read them: the same words as the command line's (cli/words.py). Pure.

const NOTHING = "–";

export function number(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "nan";
  if (!Number.isFinite(x)) return x > 0 ? "inf" : "-inf";
  const size = Math.abs(x);
  if (x === 0 || (size >= 1e-3 && size < 1e6)) {
    return x.toLocaleString("en-US", { maximumFractionDigits: 4 });
  }
  const [digits, power] = x.toExponential(3).split("e");
  return `${digits}e${power[0]}${power.slice(1).padStart(2, "0")}`;
}

/** Never 100 % before the end: rounded down. */
export function percent(fraction) {
  return fraction === null || fraction === undefined ? "" : `${Math.floor(fraction * 100 + 1e-9)}%`;
}

/** 42s, 3m12s, 1h05m, 2d03h */
export function length(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NOTHING;
  const whole = Math.max(0, Math.floor(seconds));
  const two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${two(whole % 60)}s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)}h${two(Math.floor((whole % 3600) / 60))}m`;
  return `${Math.floor(whole / 86400)}d${two(Math.floor((whole % 86400) / 3600))}h`;
}

/** 14:03:59, in the reader's own time zone */
export function clock(iso) {
  const at = moment(iso);
  if (!at) return NOTHING;
  return [at.getHours(), at.getMinutes(), at.getSeconds()].map((part) => String(part).padStart(2, "0")).join(":");
}

/** 2026-03-01 */
export function day(iso) {
  const at = moment(iso);
  if (!at) return NOTHING;
  const two = (value) => String(value).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** "just now", "3 minutes ago", "2 days ago"; `now` in milliseconds */
export function ago(iso, now = Date.now()) {
  const at = moment(iso);
  if (!at) return NOTHING;
  const seconds = (now - at.getTime()) / 1000;
  if (seconds < 10) return "just now";
  for (const [name, size, most] of [["second", 1, 60], ["minute", 60, 60], ["hour", 3600, 24], ["day", 86400, 30]]) {
    const count = Math.floor(seconds / size);
    if (count < most) return `${count} ${name}${count === 1 ? "" : "s"} ago`;
  }
  return day(iso);
}

export function bytes(n) {
  if (n === null || n === undefined) return NOTHING;
  let count = n;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (count < 1024) return unit === "B" ? `${Math.round(count)} B` : `${count.toFixed(1)} ${unit}`;
    count /= 1024;
  }
  return `${count.toFixed(1)} TiB`;
}

/** 1,234.50; a little is never nothing: <0.01 */
export function credits(x) {
  if (x === null || x === undefined) return NOTHING;
  if (x > 0 && x < 0.005) return "<0.01";
  return x.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 });
}

/** step 120/1,000, epoch 3 */
export function steps(progress) {
  if (!progress || (!progress.step && progress.total == null)) return "";
  const total = progress.total == null ? "" : `/${progress.total.toLocaleString("en-US")}`;
  const epoch = progress.epoch ? `, epoch ${progress.epoch}` : "";
  return `step ${(progress.step ?? 0).toLocaleString("en-US")}${total}${epoch}`;
}

function moment(iso) {
  const at = iso ? new Date(iso) : null;
  return at && !Number.isNaN(at.getTime()) ? at : null;
}
