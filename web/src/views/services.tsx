import { useState } from "preact/hooks";
import type { Callers, Service, Services } from "../api";
import { path } from "../api";
import { type Arrow, type Box, Graph } from "../graph";
import { at, useLoaded, useSettled } from "../hooks";
import { Badge, type Column, DEMANDS, DemandBadge, Filter, Loading, Pager, Table, Title } from "../parts";
import { count } from "../words";

const COLUMNS: Column<Service>[] = [
  { name: "Service", cell: (row) => <span title={row.object}>{row.host}</span> },
  { name: "Ports", cell: (row) => row.ports.map((port) => `${port.port} ${port.protocol}`).join(", ") },
  { name: "Mutual TLS", cell: (row) => <Tls service={row} /> },
  { name: "Waypoint", cell: (row) => (row.waypoint ? named(row.waypoint) : "") },
  { name: "Who may call", cell: (row) => <CallersText callers={row.access.callers} outside={row.access.mtls === "outside"} /> },
  { name: "Visible to", cell: (row) => (row.visibleTo === null ? "all namespaces" : row.visibleTo.length === 0 ? "nobody" : row.visibleTo.join(", ")) },
];

/** The columns if no service has a waypoint. */
const WITHOUT = COLUMNS.filter((column) => column.name !== "Waypoint");

function named(waypoint: { name: string; namespace: string }): string {
  return waypoint.namespace ? `${waypoint.namespace}/${waypoint.name}` : waypoint.name;
}

/** The two views of a namespace. */
export function NamespaceTabs({ namespace, here }: { namespace: string; here: "policies" | "calls" }) {
  const all: [here: string, text: string, href: string][] = [
    ["policies", "Who may call", at("mesh", namespace)],
    ["calls", "Who calls", at("mesh", namespace, "calls")],
  ];
  return (
    <nav class="tabs" aria-label={`Views of ${namespace}`}>
      {all.map(([name, text, href]) => (
        <a key={name} href={href} aria-current={name === here ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}

/** The services of one namespace and who may call each. */
export function ServicesView({ namespace }: { namespace: string }) {
  const [filter, setFilter] = useState("");
  const [offset, setOffset] = useState(0);
  const settled = useSettled(filter);
  const loaded = useLoaded<Services>(path("view/mesh", { namespace, filter: settled, offset, limit: 40 }), 5000);
  return (
    <>
      <p class="crumbs">
        <a href={at("mesh")}>Mesh</a>
      </p>
      <Title note="Who may call each service according to AuthorizationPolicies, and which mode of mutual TLS PeerAuthentications require of its workloads.">{namespace}</Title>
      <NamespaceTabs namespace={namespace} here="policies" />
      <div class="controls">
        <Filter label="Filter by service" value={filter} onChange={(text) => (setFilter(text), setOffset(0))} />
      </div>
      <Loading of={loaded}>
        {(value) => (
          <>
            {value.rows.length > 0 && <Drawn services={value.rows} />}
            <Table caption={`Services of ${namespace}`} columns={value.rows.some((row) => row.waypoint) ? COLUMNS : WITHOUT} rows={value.rows} id={(row) => row.host} empty="No matching service." />
            <Pager of={value} what="services" onMove={setOffset} />
          </>
        )}
      </Loading>
    </>
  );
}

function Drawn({ services }: { services: Service[] }) {
  const boxes = new Map<string, Box>();
  const arrows: Arrow[] = [];
  /** Services behind each waypoint that each caller may call. */
  const passing = new Map<string, { from: string; to: string; names: string[] }>();
  for (const service of services) {
    const { callers, mtls } = service.access;
    const limits = callers.withConditions ? { text: "certain requests only" } : {};
    const waypoint = service.waypoint && `waypoint ${named(service.waypoint)}`;
    for (const caller of names(callers, mtls === "outside")) {
      if (!boxes.has(caller.id)) boxes.set(caller.id, caller);
      if (waypoint) {
        const key = `${caller.id}>${waypoint}`;
        const way = passing.get(key) ?? { from: caller.id, to: waypoint, names: [] };
        way.names.push(service.name);
        passing.set(key, way);
      } else {
        arrows.push({ from: caller.id, to: service.host, ...limits });
      }
    }
  }
  for (const { from, to, names } of passing.values()) arrows.push({ from, to, means: `${from} may call through ${to}: ${names.join(", ")}` });
  for (const { host, name, waypoint } of services) {
    if (!waypoint) continue;
    const id = `waypoint ${named(waypoint)}`;
    boxes.set(id, { id, lines: [named(waypoint), "waypoint"], tone: "plain", column: 1 });
    arrows.push({ from: id, to: host, means: `${id} handles the requests for ${name}` });
  }
  for (const service of services) {
    const { mtls, callers } = service.access;
    const lines = [service.name, DEMANDS[mtls].word, ...(callers.nobody ? ["nobody may call it"] : [])];
    boxes.set(service.host, { id: service.host, lines, tone: DEMANDS[mtls].tone, column: service.waypoint ? 2 : 1 });
  }
  return <Graph label="Who may call which service" boxes={[...boxes.values()]} arrows={arrows} />;
}

/** The callers of a service as boxes. */
function names(callers: Callers, outside: boolean): Box[] {
  const box = (id: string, lines: string[], href?: string): Box => ({ id, lines, tone: "plain", href, column: 0 });
  if (outside) return [];
  return [
    ...(callers.anyone ? [box("anyone", ["anyone", "no ALLOW policy applies"])] : []),
    ...callers.namespaces.map((name) => box(`namespace ${name}`, [`namespace ${name}`], name.includes("*") ? undefined : at("mesh", name))),
    ...callers.accounts.map((account) => box(account, [short(account), "service account"])),
    ...callers.others.map((text) => box(text, [text])),
  ];
}

/** `namespace/account` of an identity. */
function short(account: string): string {
  return account.replace(/^[^/]+\/ns\/([^/]+)\/sa\//, "$1/");
}

function Tls({ service }: { service: Service }) {
  const { mtls, workloads, speaking, captured } = service.access;
  const bare = workloads - speaking - captured;
  return (
    <>
      <DemandBadge demand={mtls} />
      {mtls !== "outside" && captured > 0 && <span class="quiet block">{`${captured} of ${count(workloads, "endpoint")} behind ztunnel`}</span>}
      {mtls !== "outside" && bare > 0 && (
        <span class="quiet block">{`${bare} of ${count(workloads, "endpoint")} without a ${captured > 0 ? "sidecar or ztunnel" : "sidecar"}`}</span>
      )}
    </>
  );
}

function CallersText({ callers, outside }: { callers: Callers; outside: boolean }) {
  if (outside) return <span class="quiet">policies do not apply</span>;
  const named = [...callers.namespaces.map((name) => `namespace ${name}`), ...callers.accounts.map(short), ...callers.others];
  return (
    <>
      {callers.anyone && <Badge tone="wait">anyone</Badge>}
      {callers.nobody && <Badge tone="bad">nobody</Badge>}
      {named.length > 0 && <span>{named.join(", ")}</span>}
      {callers.withConditions && <span class="quiet block">some of them for certain requests only (path, method, port or condition)</span>}
      {callers.allowedBy.length > 0 && <span class="quiet block">by {callers.allowedBy.join(", ")}</span>}
      {callers.deniedBy.length > 0 && <span class="quiet block">except requests denied by {callers.deniedBy.join(", ")}</span>}
      {callers.askedBy.length > 0 && <span class="quiet block">if allowed by the extension provider of {callers.askedBy.join(", ")}</span>}
    </>
  );
}
