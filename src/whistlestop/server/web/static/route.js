// Page addresses: the browser's history is the only state. A link is a link: it can be copied, and opened in a new tab.
import { cell, html } from "./lib.js";

const here = cell(read());
addEventListener("popstate", () => here.set(read()));

function read() {
  const query = {};
  for (const [name, value] of new URLSearchParams(location.search)) {
    query[name] = name in query ? [].concat(query[name], value) : value;
  }
  // Still encoded: `match` decodes part by part, since a name may contain a slash.
  return { path: location.pathname.replace(/\/+$/, "") || "/", query };
}

/** `{a: 1, b: [2, 3], c: undefined}` → `?a=1&b=2&b=3` */
export function queryText(query) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(query ?? {})) {
    for (const one of [].concat(value)) if (one !== undefined && one !== null) parts.append(name, String(one));
  }
  const text = parts.toString();
  return text ? `?${text}` : "";
}

export function navigate(path, { replace = false } = {}) {
  const before = location.pathname;
  history[replace ? "replaceState" : "pushState"](null, "", path);
  here.set(read());
  if (location.pathname !== before) scrollTo(0, 0);
}

/** Changes the query of this page and leaves the rest as it is; null removes a key. No new step in the history. */
export function setQuery(changes) {
  navigate(location.pathname + queryText({ ...here.get().query, ...changes }) + location.hash, { replace: true });
}

export function useRoute() {
  return here.use();
}

export function Link({ href, children, onClick, ...rest }) {
  const click = (event) => {
    onClick?.(event);
    const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
    if (!plain || event.defaultPrevented || rest.target || rest.download !== undefined) return;
    event.preventDefault();
    navigate(href);
  };
  return html`<a href=${href} onClick=${click} ...${rest}>${children}</a>`;
}

/** `/projects/:name` against a path: its parts, decoded, or null. */
export function match(pattern, path) {
  const wanted = pattern.split("/");
  const given = path.split("/");
  if (wanted.length !== given.length) return null;
  const params = {};
  for (const [at, part] of wanted.entries()) {
    if (!part.startsWith(":")) {
      if (part !== given[at]) return null;
    } else {
      try {
        params[part.slice(1)] = decodeURIComponent(given[at]);
      } catch {
        return null;
      }
    }
  }
  return params;
}
