// The main metric so far, and where it goes: a band that eight of ten runs stay in.
import { html } from "../lib.js";
import { number } from "../format.js";
import { count } from "./words.js";

const WIDTH = 640;
const HEIGHT = 150;
const STEEP = 15;  // times the lowest value: then what is to come is seen on a log scale only

export function AdviceCurve({ gain }) {
  const { curve, ahead } = gain;
  const values = [...curve.map(([, value]) => value), ...ahead.flatMap(({ low, high }) => [low, high])];
  const log = Math.min(...values) > 0 && Math.max(...values) > STEEP * Math.min(...values);
  const scaled = (value) => (log ? Math.log(value) : value);
  const [low, high] = [Math.min(...values), Math.max(...values)].map(scaled);
  const [first, last] = [curve[0][0], ahead.at(-1).step];
  const across = (step) => (last > first ? (step - first) / (last - first) : 1) * WIDTH;
  const down = (value) => 4 + (high > low ? (high - scaled(value)) / (high - low) : 0.5) * (HEIGHT - 8);
  const place = (step, value) => `${across(step).toFixed(1)} ${down(value).toFixed(1)}`;
  const line = (points) => `M${points.join("L")}`;
  const band = [...ahead.map((at) => place(at.step, at.high)), ...ahead.map((at) => place(at.step, at.low)).reverse()];
  const { now, end, better } = gain;
  const brings = gain.distinct ? `${number(better.likely)} better (${number(better.low)} to ${number(better.high)}), more than its noise`
    : "not to be told from its noise";
  const words = `${number(now)} now, ${number(end.likely)} (${number(end.low)} to ${number(end.high)}) at the end: ${brings}`;
  return html`<figure class="advice-curve">
    <figcaption><strong>${gain.metric}</strong> ${words}</figcaption>
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" role="img" aria-label=${`${gain.metric}: ${words}`}>
      <path class="advice-band" d=${`${line(band)}Z`} />
      <line class="advice-now" x1=${across(ahead[0].step)} x2=${across(ahead[0].step)} y1="0" y2=${HEIGHT} />
      <path class="advice-past" d=${line(curve.map(([step, value]) => place(step, value)))} />
      <path class="advice-ahead" d=${line(ahead.map((at) => place(at.step, at.likely)))} />
    </svg>
    <p class="advice-ends"><span>step ${count(Math.round(first))}</span><span>${log ? "log scale, " : ""}${number(Math.min(...values))} to ${
      number(Math.max(...values))}</span><span>step ${count(Math.round(last))}</span></p>
  </figure>`;
}
