// Values that are no numbers: where they stand together, and in words. Pure.

const WORDS = { nan: "NaN", inf: "+∞", "-inf": "−∞" };

/** Where a curve has no number: [{from, to, kinds, tail}] in their order, one for each unbroken stretch. The server names the
 * first hundred; beyond them a bucket in which nothing is finite is null. `endsOdd`: the newest value is known to be none. */
export function spansOf({ x, y, nonfinite }, endsOdd = false) {
  const marks = [...nonfinite].sort((a, b) => a[0] - b[0]);
  const spans = [];
  let open = null, next = 0;
  const begin = (from) => {
    open = { from, to: from, kinds: [], tail: false };
    spans.push(open);
  };
  const take = (mark) => {
    open.to = Math.max(open.to, mark[0]);
    if (!open.kinds.includes(mark[1])) open.kinds.push(mark[1]);
  };
  for (let at = 0; at < x.length; at++) {
    const here = [];
    while (next < marks.length && marks[next][0] <= x[at]) here.push(marks[next++]);
    if (y[at] === null) {
      if (!open) begin(here.length ? here[0][0] : x[at]);
      here.forEach(take);
      open.to = x[at];
    } else if (here.length) {
      // Finite ones are in it, too: the end of what came before, or the beginning of what follows.
      const ends = open !== null && y[at - 1] === null;
      if (!ends) begin(here[0][0]);
      here.forEach(take);
      if (ends) open = null;
    } else {
      open = null;
    }
  }
  const rest = marks.slice(next);
  if (rest.length) {
    if (!open) begin(rest[0][0]);
    rest.forEach(take);
  }
  const last = x.at(-1);
  if (open && (rest.length || y.at(-1) === null || endsOdd)) {
    open.tail = true;
    if (last !== undefined) open.to = Math.max(open.to, last);
  } else if (endsOdd && last !== undefined) {
    spans.push({ from: last, to: last, kinds: [], tail: true });
  }
  return spans;
}

/** "NaN", "NaN, +∞", or "not finite" where nobody has said which. */
export function kindsWord(kinds) {
  return kinds.length ? kinds.map((kind) => WORDS[kind] ?? kind).join(", ") : "not finite";
}

/** What a value is called that is none: the last word of the stretch around it. */
export function oddWord(spans, x) {
  const span = spans.find((one) => one.from <= x && x <= one.to);
  return kindsWord(span ? span.kinds.slice(-1) : []);
}

/** "NaN since step 50 (250 values)", "NaN at step 90 (4 values in all)"; null where every value is a number.
 * `count`: how many, null if that is not known; `cut`: the window begins later than the curve. */
export function oddWords(spans, { count, cut, first, word }) {
  if (!spans.length) return null;
  const tail = spans.at(-1).tail ? spans.at(-1) : null;
  const span = tail ?? spans[0];
  const alone = spans.length === 1;
  const many = count !== null && count > 1 ? ` (${count.toLocaleString("en-US")} values${alone ? "" : " in all"})` : "";
  const kinds = kindsWord(span.kinds);
  if (tail && cut && span.from <= first) return `${kinds} in all of this window${many}`;
  if (tail && tail.to > tail.from) return `${kinds} since ${word(span.from)}${many}`;
  return `${kinds} at ${word(span.from)}${span.to > span.from ? ` to ${word(span.to)}` : ""}${many}`;
}
