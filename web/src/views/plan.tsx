import { useId, useState } from "preact/hooks";
import type { Action, Plan } from "../api";
import { RequestError, ask } from "../api";
import { Badge, Table, Title, type Tone } from "../parts";
import { bytes, count } from "../words";

const TONES: Record<Action, Tone> = { added: "plain", changed: "plain", removed: "plain", unchanged: "plain", refused: "bad", ignored: "wait" };

export function PlanView() {
  const [text, setText] = useState("");
  const [remove, setRemove] = useState("");
  const [answer, setAnswer] = useState<Plan | RequestError>();
  const [busy, setBusy] = useState(false);
  const id = useId();
  const make = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    const proposal = {
      files: text.trim() ? [{ place: "pasted", text }] : [],
      remove: remove.split(/[\s,]+/).filter((name) => name !== ""),
    };
    try {
      const body = JSON.stringify(proposal);
      setAnswer(await ask<Plan>("/debug/plan", { method: "POST", headers: { "content-type": "application/json" }, body }));
    } catch (error) {
      setAnswer(error instanceof RequestError ? error : new RequestError(0, String(error)));
    }
    setBusy(false);
  };
  return (
    <>
      <Title note="Shows what a change would do to the connected proxies. Nothing is applied.">Plan a change</Title>
      <form onSubmit={make}>
        <div class="field">
          <label for={`${id}y`}>Objects to add or change, as YAML</label>
          <textarea id={`${id}y`} rows={12} spellcheck={false} autocapitalize="off" value={text} onInput={(event) => setText(event.currentTarget.value)} />
        </div>
        <div class="controls">
          <div class="field wide">
            <label for={`${id}r`}>Objects to delete, as KIND/NAMESPACE/NAME</label>
            <input id={`${id}r`} spellcheck={false} autocapitalize="off" autocomplete="off" value={remove} onInput={(event) => setRemove(event.currentTarget.value)} />
          </div>
          <button type="submit" class="main" disabled={busy || (!text.trim() && !remove.trim())}>
            {busy ? "Planning…" : "Plan"}
          </button>
        </div>
      </form>
      <div aria-live="polite">
        {answer instanceof RequestError ? <p class="notice bad">{answer.message}</p> : answer && <Planned plan={answer} />}
      </div>
    </>
  );
}

function Planned({ plan }: { plan: Plan }) {
  return (
    <section aria-label="The plan">
      <h2>Objects</h2>
      <ul class="findings">
        {plan.objects.map((one, index) => (
          <li key={index}>
            <Badge tone={TONES[one.action]}>{one.action}</Badge>
            <div>
              <p>
                {one.object} <span class="quiet">{one.place}</span>
              </p>
              {one.errors.map((text) => (
                <p key={text} class="said bad">{`error: ${text}`}</p>
              ))}
              {one.warnings.map((text) => (
                <p key={text} class="said">{`warning: ${text}`}</p>
              ))}
            </div>
          </li>
        ))}
      </ul>
      <h2>Proxies</h2>
      <p>{`${plan.reached} of ${count(plan.proxies, "proxy", "proxies")} would receive changes, about ${bytes(plan.bytes)}.`}</p>
      {plan.refused.length > 0 && (
        <>
          <h2>Envoy would reject</h2>
          <ul class="problems">
            {plan.refused.map((one) => (
              <li key={`${one.type} ${one.name}`} class="said bad">{`${one.type} ${one.name} at ${count(one.proxies, "proxy", "proxies")}: ${one.reason}`}</li>
            ))}
          </ul>
        </>
      )}
      {plan.leftOut.length > 0 && (
        <>
          <h2>Skipped configuration</h2>
          <ul class="problems">
            {plan.leftOut.map((text) => (
              <li key={text} class="said">
                {text}
              </li>
            ))}
          </ul>
        </>
      )}
      <h2>Requests with a different route</h2>
      <Table
        caption="Requests with a different route"
        rows={plan.traffic}
        id={(row) => `${row.request} ${row.from.join()}`}
        empty="None known."
        columns={[
          { name: "Request", cell: (row) => row.request },
          { name: "From", cell: (row) => row.from.join(", ") },
          { name: "Before", cell: (row) => row.before },
          { name: "After", cell: (row) => row.after },
        ]}
      />
      <h2>Resources</h2>
      {plan.resources.length === 0 && <p class="quiet">No resource changes.</p>}
      {plan.resources.map((one) => (
        <details key={`${one.type} ${one.name} ${one.action}`}>
          <summary>
            {one.action} <b>{one.type}</b> {one.name} <span class="quiet">at {count(one.proxies, "proxy", "proxies")}</span>
          </summary>
          {one.diff ? <Diff text={one.diff} /> : <p class="quiet">No diff available.</p>}
        </details>
      ))}
      {plan.more.map((text) => (
        <p key={text} class="quiet">
          {text}
        </p>
      ))}
    </section>
  );
}

function Diff({ text }: { text: string }) {
  const tone = (line: string) => (line.startsWith("+") ? "plus" : line.startsWith("-") ? "minus" : "");
  return (
    <pre tabIndex={0}>
      {text.split("\n").map((line, index) => (
        <span key={index} class={tone(line)}>
          {line + "\n"}
        </span>
      ))}
    </pre>
  );
}
