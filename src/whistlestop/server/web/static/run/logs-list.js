// A list of any length in a box: only the rows in sight are in the page. Rows have one height, so a line's place is a sum.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../lib.js";

export const ROW = 20;  // pixels
const TALLEST = 8_000_000;  // pixels; browsers give up at 17 to 33 million
const BEYOND = 10;  // rows above and below

/** Somebody has scrolled up, and the event that tells us of it is still on its way. A shorter list moves the bar, too, but to its end. */
function left(element, expected) {
  const end = element.scrollHeight - element.clientHeight;
  return element.scrollTop < expected - 2 && element.scrollTop < end - ROW;
}

/** `row(index, width)` is one row. `handle.current` gets {to(index), end()}; `follow` keeps the end in sight; `onFollow(false)` when somebody scrolls up. */
export function VirtualList({ count, row, follow, onFollow, handle, label }) {
  const box = useRef(null);
  const [{ height, width }, setSize] = useState({ height: 400, width: 800 });
  const [offset, setOffset] = useState(0);  // of the first visible pixel, in the list's full length
  const expected = useRef(0);  // where we have put the scroll bar ourselves
  const whole = count * ROW;
  const most = Math.max(0, whole - height);
  const track = Math.min(whole, TALLEST);
  const ratio = most > 0 ? Math.max(0, track - height) / most : 1;  // below 1 where the bar is shorter than the list
  const at = Math.min(offset, most);
  const now = useRef({});
  now.current = { most, ratio, at, follow };

  const go = (to) => {
    const inside = Math.max(0, Math.min(now.current.most, to));
    setOffset(inside);
    if (box.current) {
      box.current.scrollTop = inside * now.current.ratio;
      expected.current = box.current.scrollTop;
    }
    return inside;
  };
  if (handle) {
    handle.current = {
      to: (index) => go(index * ROW - height / 2 + ROW / 2),
      end: () => go(now.current.most),
      top: () => Math.floor(now.current.at / ROW),
    };
  }

  useLayoutEffect(() => {
    if (follow && !left(box.current, expected.current)) go(most);
  }, [follow, most]);

  useEffect(() => {
    const element = box.current;
    const observer = new ResizeObserver(() => setSize({ height: element.clientHeight, width: element.clientWidth }));
    observer.observe(element);
    // Where the bar is shorter than the list, a wheel's pixel would be many rows: it is taken at its word instead.
    const wheel = (event) => {
      if (now.current.ratio >= 1 || event.ctrlKey || !event.deltaY) return;
      event.preventDefault();
      const step = event.deltaMode === 1 ? ROW : event.deltaMode === 2 ? element.clientHeight : 1;
      moved(go(now.current.at + event.deltaY * step));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => {
      observer.disconnect();
      element.removeEventListener("wheel", wheel);
    };
  }, []);

  const moved = (to) => {
    const end = to >= now.current.most - ROW;
    if (end !== now.current.follow) onFollow(end);
  };
  const scroll = (event) => {
    const top = event.currentTarget.scrollTop;
    if (Math.abs(top - expected.current) < 2) return;  // our own doing
    expected.current = top;
    const to = now.current.ratio ? top / now.current.ratio : 0;
    setOffset(to);
    moved(to);
  };
  const key = (event) => {
    const step = { ArrowDown: ROW, ArrowUp: -ROW, PageDown: height - ROW, PageUp: ROW - height }[event.key];
    const to = step ? now.current.at + step : { Home: 0, End: now.current.most }[event.key];
    if (to === undefined || event.target !== box.current || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    moved(go(to));
  };

  const first = Math.max(0, Math.floor(at / ROW) - BEYOND);
  const last = Math.min(count, Math.ceil((at + height) / ROW) + BEYOND);
  const rows = [];
  for (let index = first; index < last; index++) {
    rows.push(html`<div class="log-row-place" key=${index} style=${{ transform: `translateY(${index * ROW - at}px)` }}
      >${row(index, width)}</div>`);
  }
  return html`<div class="log-box" ref=${box} tabindex="0" role="log" aria-live="off" aria-label=${label} onScroll=${scroll}
      onKeyDown=${key}>
    <div class="log-window" style=${{ height: `${height}px` }}>${rows}</div>
    <div class="log-track" aria-hidden="true" style=${{ height: `${Math.max(0, track - height)}px` }}></div>
  </div>`;
}
