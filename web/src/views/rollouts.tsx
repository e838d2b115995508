import type { Rollout, RolloutState } from "../api";
import { useLoaded } from "../hooks";
import { Badge, type Column, Loading, Table, type Tone } from "../parts";
import { count } from "../words";
import { Maker } from "./proxy";

const TONES: Record<RolloutState, Tone> = { waiting: "wait", rolling: "wait", paused: "plain", stopped: "bad" };

const COLUMNS: Column<Rollout>[] = [
  { name: "Object", cell: (row) => <Maker object={row.object} /> },
  { name: "State", cell: (row) => <Badge tone={TONES[row.state]}>{row.state}</Badge> },
  { name: "Stage", cell: (row) => <Stage rollout={row} /> },
  { name: "Acknowledged by", cell: (row) => (row.stage === 0 ? "" : `${row.taken} of ${count(row.reached, "proxy", "proxies")}`) },
  { name: "Other proxies have", cell: (row) => (row.before === null ? "no version" : version(row.before)) },
  { name: "Reason", cell: (row) => <Reason rollout={row} /> },
];

/** The rollouts in progress; nothing if there are none. */
export function Rollouts() {
  const loaded = useLoaded<{ rollouts: Rollout[] }>("/debug/rollout", 1000);
  if (loaded.value?.rollouts.length === 0 && !loaded.error) return null;
  return (
    <section aria-label="Rollouts">
      <h2>Rollouts</h2>
      <Loading of={loaded}>{(value) => <Table caption="Rollouts" columns={COLUMNS} rows={value.rollouts} id={(row) => row.object} empty="" />}</Loading>
    </section>
  );
}

function version(generation: number): string {
  return generation === 0 ? "the previous version" : `generation ${generation}`;
}

function Stage({ rollout }: { rollout: Rollout }) {
  const { stage, stages, seconds } = rollout;
  if (stage === 0) return <span class="quiet">{`stages ${stages.join(", ")}`}</span>;
  return (
    <>
      {`${stage} of ${stages.length} (${stages[stage - 1]})`}
      <span class="quiet block">since {duration(seconds)}</span>
    </>
  );
}

function duration(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds)} s`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`;
}

function Reason({ rollout }: { rollout: Rollout }) {
  const { reason, pendingProxies, state } = rollout;
  const others = notWaitedFor(rollout);
  return (
    <>
      <span class="said">{reason}</span>
      {pendingProxies.length > 0 && <span class="quiet block">pending: {pendingProxies.join(", ")}</span>}
      {others.length > 0 && <span class="quiet block">not waited for: {others.join(", ")}</span>}
      {state === "stopped" ? <span class="quiet block">Editing the object starts it again.</span> : <Orders rollout={rollout} />}
    </>
  );
}

/** The proxies that hold no stage up, in the words of `navarch rollout status`. */
function notWaitedFor({ withoutIdentity, leftBehind }: Rollout): string[] {
  const counts: [number, string][] = [
    [withoutIdentity, "without an identity"],
    [leftBehind, "outside its namespace"],
  ];
  return counts.filter(([number]) => number > 0).map(([number, which]) => `${number} ${which}`);
}

/** The commands for a rollout; the page itself is read-only. */
function Orders({ rollout }: { rollout: Rollout }) {
  const [kind = "", path = ""] = rollout.object.split(" ");
  const [namespace = "", name = ""] = path.split("/");
  const of = `${kind.toLowerCase()} ${name} -n ${namespace}`;
  const all: [order: string, does: string][] = [
    ...(rollout.state === "paused" ? [] : [["pause", "stop before the next stage"] as [string, string]]),
    ["promote", "start the next stage now"],
    ["abort", "restore the previous version on all proxies"],
  ];
  return (
    <details>
      <summary>Commands</summary>
      <ul class="list">
        {all.map(([order, does]) => (
          <li key={order}>
            <code>{`navarch rollout ${order} ${of}`}</code> <span class="quiet">{does}</span>
          </li>
        ))}
      </ul>
    </details>
  );
}
