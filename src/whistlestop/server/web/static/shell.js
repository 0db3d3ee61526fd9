// Sidebar, top line, the banner of a lost connection, and the list of keyboard shortcuts.
import { api } from "./api.js";
import { html, useEffect, useRef, useState } from "./lib.js";
import { useConnection } from "./live.js";
import { signOut } from "./me.js";
import { Link, navigate } from "./route.js";
import { Button, Dialog, Icon, toast } from "./ui/index.js";

// Another page is a line here, and one in app.js.
const AREAS = [
  { id: "training", label: "Training", href: "/", icon: "training" },
  { id: "queue", label: "Queue", href: "/queue", icon: "queue" },
  { id: "pools", label: "Pools", href: "/pools", icon: "pools" },
  { id: "hosts", label: "Hosts", href: "/hosts", icon: "hosts" },
  { id: "usage", label: "Usage", href: "/usage", icon: "usage" },
  { id: "alerts", label: "Alerts", href: "/alerts", icon: "bell" },
];

export function Sidebar({ area, me }) {
  return html`<header class="sidebar">
    <${Link} class="brand" href="/" aria-label="Whistlestop, to the projects"><${Mark} /><span>Whistlestop</span><//>
    <nav class="areas" aria-label="Areas"><ul>${AREAS.map((one) => html`<li key=${one.id}>
      <${Link} class="area" href=${one.href} aria-current=${one.id === area ? "true" : undefined}
        ><${Icon} name=${one.icon} /><span>${one.label}</span><//></li>`)}</ul></nav>
    <p class="sidebar-foot">Version ${me.version}</p>
  </header>`;
}

export function Mark() {
  return html`<svg class="mark" width="24" height="24" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
    <rect class="mark-ground" width="32" height="32" rx="7" />
    <circle class="mark-line" cx="16" cy="11" r="5" /><path class="mark-line" d="M16 16v10M11 26h10" />
  </svg>`;
}

export function Top({ me }) {
  const [busy, setBusy] = useState(false);
  const leave = async () => {
    setBusy(true);
    try {
      await signOut();
      navigate("/sign-in");
    } catch (problem) {
      toast(problem.message, { kind: "problem" });
      setBusy(false);
    }
  };
  return html`<div class="top" role="region" aria-label="Account and connection">
    <${Connection} />
    <span class="top-space"></span>
    <span class="who"><span class="who-name">${me.name}</span><span class="who-role">${me.role}</span></span>
    <${Button} kind="quiet" busy=${busy} onClick=${leave} aria-label="Sign out"><${Icon} name="signout" /><span class="top-words">Sign out</span><//>
  </div>`;
}

const CONNECTION = { live: "Live", connecting: "Connecting", lost: "Not connected" };

/** Shown late when it connects: a page that opens is not worth a flicker. */
function Connection() {
  const state = useSettled(useConnection(), 800);
  return html`<span class="connection is-${state}" data-connection=${state}><span class="connection-mark"></span
    >${CONNECTION[state]}</span>`;
}

function useSettled(state, milliseconds) {
  const [settled, setSettled] = useState("live");
  useEffect(() => {
    if (state !== "connecting") {
      setSettled(state);
      return undefined;
    }
    const timer = setTimeout(() => setSettled(state), milliseconds);
    return () => clearTimeout(timer);
  }, [state]);
  return settled;
}

export function Banner({ me }) {
  const lost = useConnection() === "lost";
  const upgraded = useUpgraded(lost, me.version);
  return html`<div class="banner-place" role="status" aria-live="polite">${lost && html`<p class="banner is-lost">
    <${Icon} name="alert" /><span><strong>The server does not answer.</strong> Runs go on without it. What you see is as
    of a moment ago; this page goes on by itself as soon as the server is back.</span></p>`}
    ${!lost && upgraded && html`<p class="banner"><${Icon} name="info" /><span>The server is now version ${upgraded}.
    <a href=${location.pathname + location.search}>Reload this page</a> to get its dashboard.</span></p>`}</div>`;
}

/** The server's new version, if it came back as another one than this page was made for. */
function useUpgraded(lost, version) {
  const [found, setFound] = useState(null);
  const was = useRef(false);
  useEffect(() => {
    if (!lost && was.current) {
      api.get("/whoami").then((who) => setFound(who.version === version ? null : who.version), () => {});
    }
    was.current = lost;
  }, [lost, version]);
  return found;
}

const KEYS = [
  ["?", "This list"],
  ["g then t", "Training: the projects"],
  ["g then q", "The queue"],
  ["g then p", "Pools"],
  ["g then h", "Hosts"],
  ["g then u", "Usage"],
  ["g then a", "Alerts"],
  ["/", "Search, where a page has one"],
  ["Esc", "Close a menu or a dialog"],
  ["↑ ↓ Home End", "Move in a menu"],
];

const PLACES = { t: "/", q: "/queue", p: "/pools", h: "/hosts", u: "/usage", a: "/alerts" };

export function Shortcuts() {
  const [open, setOpen] = useState(false);
  useEffect(() => {
    let went = 0;
    const press = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
      if (event.target.closest("input, textarea, select, [contenteditable], dialog, [role=menu]")) return;
      const going = performance.now() - went < 1500;
      went = 0;
      if (event.key === "?") setOpen(true);
      else if (event.key === "g") went = performance.now();
      else if (going && event.key in PLACES) navigate(PLACES[event.key]);
      else if (event.key === "/") focusSearch(event);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
  return open && html`<${Dialog} title="Keyboard shortcuts" onClose=${() => setOpen(false)}>
    <dl class="keys">${KEYS.map(([key, text]) => html`<div key=${key}><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
  <//>`;
}

function focusSearch(event) {
  const search = document.querySelector("main input[type=search]");
  if (!search) return;
  event.preventDefault();
  search.focus();
}
