import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { Edge, EdgeClass, Edges } from "../api";
import { path } from "../api";
import { forget, take, useEvidence } from "../evidence";
import { type Arrow, type Box, Graph } from "../graph";
import { at, useLoaded, useSettled } from "../hooks";
import { Badge, Choice, type Column, Filter, Loading, Pager, Table, Title, type Tone } from "../parts";
import { ago, count, perSecond, share } from "../words";
import { NamespaceTabs } from "./services";

/** How many edges with calls are shown at once. */
const SHOWN = 60;

/** Room for the rates between workloads and services. */
const AISLE = 340;

const CLASSES: Record<EdgeClass, { tone: Tone; word: string }> = {
  used: { tone: "good", word: "used" },
  denied: { tone: "bad", word: "denied" },
  allowed: { tone: "plain", word: "allowed and never called" },
};

/** Which services the workloads of a namespace call, and which they may call. */
export function CallsView({ namespace, workload }: { namespace: string; workload: string }) {
  const [filter, setFilter] = useState("");
  const [offset, setOffset] = useState(0);
  const [everywhere, setEverywhere] = useState(false);
  const evidence = useEvidence();
  const settled = useSettled(filter);
  const allowed = everywhere || workload !== "";
  const page = path("view/edges", { namespace, workload, allowed, filter: settled, offset, limit: SHOWN });
  const loaded = useLoaded<Edges>(page, 60_000, evidence?.body ?? "");
  return (
    <>
      <p class="crumbs">
        <a href={at("mesh")}>Mesh</a>
      </p>
      <Title note="Which services the workloads of this namespace call, who calls its services, which calls were denied, and which are allowed and were never made. navarch scope counts them.">{namespace}</Title>
      <NamespaceTabs namespace={namespace} here="calls" />
      <div class="controls">
        <Filter label="Filter by workload or service" value={filter} onChange={(text) => (setFilter(text), setOffset(0))} />
        <Choice
          label="Workload"
          value={workload}
          all={[["", "all of the namespace"], ...names(loaded.value, workload).map((name): [string, string] => [name, name])]}
          onChange={(name) => {
            window.location.hash = name ? at("mesh", namespace, "calls", name) : at("mesh", namespace, "calls");
          }}
        />
        <label class="check">
          <input type="checkbox" checked={allowed} disabled={workload !== ""} onChange={(event) => setEverywhere(event.currentTarget.checked)} />
          Allowed and never called
        </label>
        <EvidenceField />
      </div>
      <Loading of={loaded}>{(edges) => <Found edges={edges} onMove={setOffset} />}</Loading>
    </>
  );
}

/** The workloads to choose from, with the chosen one. */
function names(edges: Edges | undefined, chosen: string): string[] {
  const all = new Set(edges?.workloads.map((one) => one.name));
  if (chosen) all.add(chosen);
  return [...all].sort();
}

/** Chooses a file with evidence. */
function EvidenceField() {
  const evidence = useEvidence();
  const [wrong, setWrong] = useState("");
  return (
    <div class="field">
      <span class="quiet note">{evidence ? <Chosen name={evidence.name} /> : "Output of navarch scope suggest -o json"}</span>
      <label class="button">
        Choose evidence…
        <input
          type="file"
          class="hidden"
          accept=".json,application/json"
          onChange={async (event) => {
            const input = event.currentTarget;
            const [file] = input.files ?? [];
            if (file) setWrong(await take(file));
            // The same file can be chosen again after a later run.
            input.value = "";
          }}
        />
      </label>
      {wrong && (
        <span class="said bad" role="alert">
          {wrong}
        </span>
      )}
    </div>
  );
}

function Chosen({ name }: { name: string }) {
  return (
    <>
      {name}{" "}
      <button type="button" class="small" onClick={forget}>
        Forget
      </button>
    </>
  );
}

function Found({ edges, onMove }: { edges: Edges; onMove: (offset: number) => void }) {
  const rows = [...edges.rows, ...(edges.allowed?.rows ?? [])];
  return (
    <>
      <Summary edges={edges} />
      {rows.length > 0 && <Drawn rows={rows} edges={edges} />}
      {rows.length > 0 && <Legend />}
      {(edges.isRead || edges.allowed) && (
        <Table caption={`Calls of ${edges.namespace}`} columns={columns(edges)} rows={rows} id={(row) => `${row.from}>${row.to}`} empty="No matching calls." />
      )}
      <Pager of={edges} what="edges with calls" onMove={onMove} />
      {edges.allowed && <Rest of={edges.allowed} edges={edges} />}
    </>
  );
}

function Summary({ edges }: { edges: Edges }) {
  const { since, read, counts } = edges;
  if (!edges.isRead) {
    return (
      <p class="notice">
        There is no evidence, so that no calls are shown: proxies count them, and the control plane does not read their metrics. Collect it with{" "}
        <code>{`navarch scope suggest -n ${edges.namespace} -o json > calls.json`}</code> and choose the file above, or start{" "}
        <code>navarch dashboard --evidence calls.json</code>.
      </p>
    );
  }
  const counted = read === null ? "No calls of workloads of this namespace were counted" : since === null ? `Calls were last read ${ago(read)}` : `Calls were counted since ${moment(since)}, and last read ${ago(read)}`;
  const more = edges.moreWorkloads > 0 ? ` ${count(edges.moreWorkloads, "further workload")} cannot be selected: there are too many.` : "";
  return <p>{`${counted}: ${count(counts.used, "edge")} used, ${counts.denied.toLocaleString("en")} denied.${more}`}</p>;
}

/** What the limits have left out of the allowed edges. */
function Rest({ of, edges }: { of: NonNullable<Edges["allowed"]>; edges: Edges }) {
  const parts = [
    of.more > 0 && `${count(of.more, "more pair")} of a workload and a service ${of.more === 1 ? "was" : "were"} not looked at`,
    of.moreWorkloads > 0 && `${count(of.moreWorkloads, "workload")} ${of.moreWorkloads === 1 ? "was" : "were"} not looked at`,
    of.refused > 0 && `${count(of.refused, "pair")} would be refused`,
  ].filter(Boolean);
  return (
    <p class="quiet">
      {`Allowed is what ${count(edges.sidecars, "sidecar")} of ${edges.namespace} ${edges.sidecars === 1 ? "sees" : "see"}, and what policies and routes would let pass now, as a GET of / to the first port: those connected to the replica ${edges.replica}, and not those of others.`}
      {parts.length > 0 && ` Beside them, ${parts.join("; ")}.`}
      {(of.more > 0 || of.moreWorkloads > 0) && " Select a workload, or filter."}
    </p>
  );
}

function columns(edges: Edges): Column<Edge>[] {
  const unread = new Set(edges.workloads.filter((one) => !one.isRead).map((one) => `${edges.namespace}/${one.name}`));
  const total = (edge: Edge) => edge.requests + edge.connections;
  const part = (edge: Edge, number: number) => (total(edge) === 0 ? "" : <span title={number.toLocaleString("en")}>{share(number, total(edge))}</span>);
  return [
    { name: "From", cell: (edge) => <span class="said">{edge.from}</span> },
    {
      name: "To",
      cell: (edge) => (
        <span>
          <span class="said">{edge.to}</span>
          {edge.note && <span class="quiet block">{edge.note}</span>}
        </span>
      ),
    },
    { name: "Class", cell: (edge) => <Badge tone={CLASSES[edge.class].tone}>{edge.class === "allowed" && unread.has(edge.from) ? "allowed" : CLASSES[edge.class].word}</Badge> },
    { name: "Rate", number: true, cell: (edge) => (total(edge) === 0 ? "" : <Rate edge={edge} />) },
    { name: "Errors", number: true, cell: (edge) => part(edge, edge.failed) },
    { name: "Denied", number: true, cell: (edge) => part(edge, edge.class === "denied" ? total(edge) : edge.denied) },
    { name: "Last seen", cell: (edge) => (edge.lastSeen ? <span title={edge.lastSeen}>{ago(edge.lastSeen)}</span> : unread.has(edge.from) ? "no metrics read" : "never") },
  ];
}

function Rate({ edge }: { edge: Edge }) {
  const counted = [edge.requests > 0 && count(edge.requests, "request"), edge.connections > 0 && count(edge.connections, "connection")].filter(Boolean).join(", ");
  return (
    <span>
      {edge.perSecond !== null && <span class="block">{perSecond(edge.perSecond)}</span>}
      <span class="quiet block">{counted}</span>
    </span>
  );
}

function Drawn({ rows, edges }: { rows: Edge[]; edges: Edges }) {
  const boxes = new Map<string, Box>();
  const read = new Map(edges.workloads.map((one) => [`${edges.namespace}/${one.name}`, one.isRead]));
  for (const edge of rows) {
    const [namespace = "", ...rest] = edge.from.split("/");
    const name = rest.join("/");
    const own = namespace === edges.namespace;
    const lines = [own ? name : edge.from, read.get(edge.from) === false ? "no metrics read" : "workload"];
    boxes.set(`from ${edge.from}`, { id: `from ${edge.from}`, lines, tone: "plain", column: 0, href: at("mesh", namespace, "calls", name) });
    boxes.set(`to ${edge.to}`, {
      id: `to ${edge.to}`,
      lines: [short(edge.to, edges.namespace), edge.toNamespace === null ? "not in the registry" : `service of ${edge.toNamespace}`],
      tone: "plain",
      column: 1,
      href: edge.toNamespace && edge.toNamespace !== edges.namespace ? at("mesh", edge.toNamespace, "calls") : undefined,
    });
  }
  return <Graph label="Which workload calls which service" boxes={[...boxes.values()]} arrows={rows.map(arrow)} aisle={AISLE} />;
}

/** The host of a service as its namespace knows it. */
function short(host: string, namespace: string): string {
  const name = host.replace(/\.svc\..*$/, "");
  return name !== host && name.endsWith(`.${namespace}`) ? name.slice(0, -namespace.length - 1) : name;
}

function arrow(edge: Edge): Arrow {
  const total = edge.requests + edge.connections;
  const ends = { from: `from ${edge.from}`, to: `to ${edge.to}` };
  switch (edge.class) {
    case "used": {
      const rate = edge.perSecond === null ? total.toLocaleString("en") : perSecond(edge.perSecond);
      const parts = [rate, edge.failed > 0 && `${share(edge.failed, total)} failed`, edge.denied > 0 && `${share(edge.denied, total)} denied`].filter(Boolean);
      return { ...ends, means: `${edge.from} calls ${edge.to}: ${parts.join(", ")}`, style: { kind: "used", label: rate, weight: edge.perSecond ?? 0, bad: (edge.failed + edge.denied) / total } };
    }
    case "denied":
      return { ...ends, means: `${edge.from} was denied ${edge.to}: ${count(edge.denied || total, "call")}`, style: { kind: "denied" } };
    case "allowed":
      return { ...ends, means: `${edge.from} may call ${edge.to}, and has not`, style: { kind: "allowed" } };
  }
}

/** What the lines mean. */
function Legend() {
  return (
    <ul class="legend" aria-label="Lines">
      <li>
        <Sample>
          <path class="arrow used" d="M2 7H46" stroke-width="3" />
        </Sample>
        used: the wider, the more calls
      </li>
      <li>
        <Sample>
          <path class="arrow used" d="M2 7H46" stroke-width="3" />
          <path class="arrow failed" d="M32 7H46" stroke-width="3" />
        </Sample>
        the share that failed or was denied
      </li>
      <li>
        <Sample>
          <path class="arrow denied" d="M2 7H46" />
          <path class="arrow denied cross" d="M19 2 29 12M29 2 19 12" />
        </Sample>
        tried, and denied
      </li>
      <li>
        <Sample>
          <path class="arrow allowed" d="M2 7H46" />
        </Sample>
        allowed and never called
      </li>
    </ul>
  );
}

function Sample({ children }: { children: ComponentChildren }) {
  return (
    <svg width="48" height="14" aria-hidden="true">
      {children}
    </svg>
  );
}

/** A moment as day and time. */
function moment(text: string): string {
  return new Date(text).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" });
}
