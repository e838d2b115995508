import { useId, useState } from "preact/hooks";
import type { Proxies, WhyNot } from "../api";
import { RequestError, ask, path } from "../api";
import { useLoaded, useSettled } from "../hooks";
import { Badge, Title } from "../parts";

const METHODS = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];

export function TraceView({ proxy: given }: { proxy: string }) {
  const [proxy, setProxy] = useState(given);
  const [host, setHost] = useState("");
  const [port, setPort] = useState("");
  const [way, setWay] = useState("/");
  const [method, setMethod] = useState("GET");
  const [claims, setClaims] = useState("");
  const [answer, setAnswer] = useState<WhyNot | RequestError>();
  const [busy, setBusy] = useState(false);
  const id = useId();
  const settled = useSettled(proxy);
  const known = useLoaded<Proxies>(path("view/proxies", { filter: settled, limit: 20 }));
  const trace = async (event: Event) => {
    event.preventDefault();
    if (claims.trim() && !isObject(claims)) {
      setAnswer(new RequestError(0, 'The claims of a token must be a JSON object, as in {"iss": "https://issuer.example", "sub": "me"}.'));
      return;
    }
    setBusy(true);
    try {
      setAnswer(await ask<WhyNot>(path("why/not", { proxy, host, port, path: way || "/", method, claims: claims.trim() })));
    } catch (error) {
      setAnswer(error instanceof RequestError ? error : new RequestError(0, String(error)));
    }
    setBusy(false);
  };
  return (
    <>
      <Title note="Evaluates a request against the configuration of the proxies, and shows the first reason why it fails. For a gateway, the request comes from outside the mesh. No request is sent.">Trace a request</Title>
      <form class="controls" onSubmit={trace}>
        <div class="field wide">
          <label for={`${id}p`}>From the proxy (pod.namespace)</label>
          <input id={`${id}p`} required list={`${id}l`} value={proxy} autocomplete="off" spellcheck={false} onInput={(event) => setProxy(event.currentTarget.value)} />
          <datalist id={`${id}l`}>
            {[...new Set(known.value?.rows.map((row) => row.proxy))].map((name) => (
              <option key={name} value={name} />
            ))}
          </datalist>
        </div>
        <div class="field">
          <label for={`${id}m`}>Method</label>
          <select id={`${id}m`} value={method} onChange={(event) => setMethod(event.currentTarget.value)}>
            {METHODS.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </div>
        <div class="field wide">
          <label for={`${id}h`}>To the host</label>
          <input id={`${id}h`} required value={host} autocomplete="off" spellcheck={false} autocapitalize="off" onInput={(event) => setHost(event.currentTarget.value)} />
        </div>
        <div class="field narrow">
          <label for={`${id}o`}>Port</label>
          <input id={`${id}o`} inputMode="numeric" pattern="[0-9]*" placeholder="first" value={port} onInput={(event) => setPort(event.currentTarget.value)} />
        </div>
        <div class="field wide">
          <label for={`${id}w`}>Path</label>
          <input id={`${id}w`} value={way} spellcheck={false} autocapitalize="off" onInput={(event) => setWay(event.currentTarget.value)} />
        </div>
        <div class="field wide">
          <label for={`${id}c`}>Claims of the token, as JSON</label>
          <input id={`${id}c`} placeholder="no token" value={claims} autocomplete="off" spellcheck={false} autocapitalize="off" onInput={(event) => setClaims(event.currentTarget.value)} />
        </div>
        <button type="submit" class="main" disabled={busy}>
          {busy ? "Tracing…" : "Trace"}
        </button>
      </form>
      <div aria-live="polite">{answer && <Answer answer={answer} />}</div>
    </>
  );
}

function isObject(text: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null && !Array.isArray(value);
  } catch {
    return false;
  }
}

function Answer({ answer }: { answer: WhyNot | RequestError }) {
  if (answer instanceof RequestError) return <p class="notice bad">{answer.message}</p>;
  return (
    <section aria-label="Path of the request">
      <h2>{answer.request}</h2>
      <ol class="steps">
        {answer.steps.map((step, index) => (
          <li key={index}>{step}</li>
        ))}
        <li class={answer.reason ? "bad" : "good"}>
          {answer.reason ? (
            <>
              <Badge tone="bad">it fails</Badge> {answer.reason}
              {answer.advice && <p class="quiet">{answer.advice}</p>}
            </>
          ) : (
            <Badge tone="good">the configuration allows it</Badge>
          )}
        </li>
      </ol>
      {answer.unknown.length > 0 && (
        <>
          <h3>Unknown</h3>
          <ul>
            {answer.unknown.map((one) => (
              <li key={one}>{one}</li>
            ))}
          </ul>
        </>
      )}
    </section>
  );
}
