// A log line's text as pieces: terminal colours become classes, other control codes go, what is searched for is marked. Pure.

const CODES = /\x1b(?:\[([0-9;:]*)([@-~])|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g;
const CONTROLS = /[\x00-\x08\x0b-\x1f\x7f]/g;

/** [{text, look}]: never anything but text. */
export function pieces(text) {
  if (!text.includes("\x1b")) return [{ text: text.replace(CONTROLS, ""), look: "" }];
  const found = [];
  let from = 0, style = {};
  const put = (part) => {
    const clean = part.replace(CONTROLS, "");
    if (clean) found.push({ text: clean, look: lookOf(style) });
  };
  for (const match of text.matchAll(CODES)) {
    put(text.slice(from, match.index));
    from = match.index + match[0].length;
    if (match[2] === "m") style = styled(style, match[1]);
  }
  put(text.slice(from));
  return found;
}

export const plain = (text) => pieces(text).map((piece) => piece.text).join("");

function styled(before, codes) {
  let style = { ...before };
  const numbers = (codes || "0").split(/[;:]/).map(Number);
  for (let at = 0; at < numbers.length; at++) {
    const code = numbers[at];
    if (code === 0) style = {};
    else if (code === 1) style.bold = true;
    else if (code === 22) style.bold = false;
    else if (code >= 30 && code <= 37) style.colour = code - 30;
    else if (code >= 90 && code <= 97) style.colour = code - 90;
    else if (code === 39) style.colour = null;
    else if (code === 38 || code === 48) at += numbers[at + 1] === 5 ? 2 : 4;  // of 256 or 16 million: left out
  }
  return style;
}

function lookOf({ bold, colour }) {
  const classes = [];
  if (bold) classes.push("ansi-bold");
  if (colour >= 1 && colour <= 6) classes.push(`ansi-${colour}`);
  return classes.join(" ");
}

/** [{text, look, hit}]: every place of `search`, in any case. */
export function marked(text, search) {
  const parts = pieces(text);
  if (!search) return parts;
  const wanted = search.toLowerCase();
  return parts.flatMap((piece) => {
    const lower = piece.text.toLowerCase();
    if (lower.length !== piece.text.length) return [piece];  // a letter that changes its length: the places would be off
    const found = [];
    let from = 0;
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
      if (at > from) found.push({ ...piece, text: piece.text.slice(from, at) });
      found.push({ ...piece, text: piece.text.slice(at, at + wanted.length), hit: true });
      from = at + wanted.length;
    }
    if (from < piece.text.length) found.push({ ...piece, text: piece.text.slice(from) });
    return found;
  });
}
