// Sign-in: by a one-time link (its code is behind the #, which no server and no log ever sees) or by a token.
import { html, useEffect, useRef, useState } from "../lib.js";
import { signInWith } from "../me.js";
import { navigate } from "../route.js";
import { Mark } from "../shell.js";
import { useTitle } from "../title.js";
import { Button, Field, ProblemBox, Spinner } from "../ui/index.js";

export default function SignIn({ query }) {
  const [code, setCode] = useState(takeCode);
  const [token, setToken] = useState("");
  const [busy, setBusy] = useState(Boolean(code));
  const [problem, setProblem] = useState(null);
  const input = useRef(null);
  useTitle("Sign in");

  const enter = async (proof) => {
    setBusy(true);
    setProblem(null);
    try {
      await signInWith(proof);
      navigate(safe(query.next), { replace: true });
    } catch (refusal) {
      setProblem(refusal);
      setBusy(false);
    }
  };
  useEffect(() => {
    if (code) enter({ code });
    const changed = () => {  // a link that is pasted here changes no more than the fragment: nothing is loaded
      const another = takeCode();
      setCode(another);
      if (another) enter({ code: another });
    };
    addEventListener("hashchange", changed);
    return () => removeEventListener("hashchange", changed);
  }, []);
  useEffect(() => {
    if (!busy) input.current?.focus();
  }, [busy]);
  const submit = (event) => {
    event.preventDefault();
    if (!busy && token.trim()) enter({ token: token.trim() });
  };
  return html`<main class="sign-in">
    <div class="sign-in-box">
      <p class="sign-in-brand"><${Mark} /> Whistlestop</p>
      <h1>Sign in</h1>
      ${busy && code && !problem ? html`<${Spinner} label="Using the link" />`
        : problem?.code === "signed_in" ? html`
        <${ProblemBox} problem=${problem} />
        <p class="sign-in-choice">
          <${Button} kind="primary" onClick=${() => navigate(safe(query.next), { replace: true })}>Stay as I am<//>
          <${Button} busy=${busy} onClick=${() => enter({ code, replace: true })}>Use the link<//></p>`
        : html`
        <${ProblemBox} problem=${problem} />
        <form onSubmit=${submit}>
          <${Field} label="Token" hint=${html`It starts with <code>whs_</code>. An admin makes one: <code>whistle token create NAME</code>`}>
            <input ref=${input} type="password" autocomplete="current-password" spellcheck=${false} required value=${token}
              onInput=${(event) => setToken(event.currentTarget.value)} />
          <//>
          <${Button} kind="primary" type="submit" busy=${busy}>Sign in<//>
        </form>
        <p class="sign-in-hint">On the server's machine there is a shorter way: <code>whistle open</code> prints a link that
          signs you in.</p>`}
    </div>
  </main>`;
}

/** Out of the address, and out of the history with it. */
function takeCode() {
  const found = /^#code=([\w-]{10,200})$/.exec(location.hash);
  if (location.hash) history.replaceState(null, "", location.pathname + location.search);
  return found ? found[1] : null;
}

/** Only our own pages: `//elsewhere` and `https:…` are addresses of others. */
export function safe(next) {
  if (typeof next !== "string" || !next.startsWith("/")) return "/";
  const address = new URL(next, location.origin);
  return address.origin === location.origin && address.pathname !== "/sign-in" ? address.pathname + address.search : "/";
}
