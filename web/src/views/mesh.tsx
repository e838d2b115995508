import { useState } from "preact/hooks";
import type { Demand, Mesh, MeshNamespace } from "../api";
import { path } from "../api";
import { type Box, Graph } from "../graph";
import { at, useLoaded, useSettled } from "../hooks";
import { Badge, type Column, DEMANDS, Filter, Loading, Table, Title } from "../parts";
import { count } from "../words";

/** The most boxes that the graph draws; the table lists all. */
const DRAWN = 60;
const ORDER: Demand[] = ["disable", "mixed", "permissive", "strict", "outside"];

const COLUMNS: Column<MeshNamespace>[] = [
  { name: "Namespace", cell: (row) => <a href={at("mesh", row.name)}>{row.name}</a> },
  { name: "Services", number: true, cell: (row) => row.services.toLocaleString("en") },
  { name: "Proxies", number: true, cell: (row) => proxies(row) },
  { name: "Mutual TLS", cell: (row) => <Demands namespace={row} /> },
  { name: "Open to anyone", number: true, cell: (row) => (row.services === 0 ? "" : count(row.open, "service")) },
];

export function MeshView() {
  const [filter, setFilter] = useState("");
  const settled = useSettled(filter);
  const loaded = useLoaded<Mesh>(path("view/mesh", { filter: settled }), 5000);
  return (
    <>
      <Title note="Namespaces, which of them may call which according to AuthorizationPolicies, and whether their services accept plain text. Select one to see its services.">
        Mesh
      </Title>
      <div class="controls">
        <Filter label="Filter by namespace" value={filter} onChange={setFilter} />
      </div>
      <Loading of={loaded}>{(mesh) => <Namespaces mesh={mesh} />}</Loading>
    </>
  );
}

function Namespaces({ mesh }: { mesh: Mesh }) {
  const { arrows } = mesh;
  const known = new Set(mesh.namespaces.map((one) => one.name));
  const told = new Set(arrows.flatMap((arrow) => [arrow.from, arrow.to]));
  // Namespaces with arrows come first if not all can be drawn.
  const drawn = [...mesh.namespaces].sort((a, b) => Number(told.has(b.name)) - Number(told.has(a.name))).slice(0, DRAWN);
  const boxes: Box[] = drawn.map((one) => ({
    id: one.name,
    lines: [one.name, `${count(one.services, "service")}, ${count(one.proxies, "proxy", "proxies")}`, ...ambient(one), ...(one.services > 0 ? [word(one)] : [])],
    tone: worst(one),
    href: at("mesh", one.name),
  }));
  // The other ends of their arrows, where a filter leaves them out of the table.
  for (const name of told) {
    if (!known.has(name) && boxes.length < DRAWN) boxes.push({ id: name, lines: [name], tone: "plain", href: at("mesh", name) });
  }
  return (
    <>
      {boxes.length > 0 && (
        <Graph
          label="Which namespace may call which"
          boxes={boxes}
          arrows={arrows.map((arrow) => ({ from: arrow.from, to: arrow.to, text: count(arrow.services, "service") }))}
        />
      )}
      <p class="quiet">
        An arrow points from a namespace that policies name to one with services that it may call. Services without an ALLOW policy are open to
        anyone and have no arrow.
        {mesh.namespaces.length > drawn.length && ` ${drawn.length} of ${mesh.total} namespaces are drawn.`}
        {mesh.moreArrows > 0 && ` ${mesh.moreArrows} more arrows are not drawn.`}
      </p>
      <Table caption="Namespaces" columns={COLUMNS} rows={mesh.namespaces} id={(row) => row.name} empty="No matching namespace." />
      <p class="pager">
        {mesh.namespaces.length} of {count(mesh.total, "namespace")}, {count(mesh.services, "service")} in all
      </p>
    </>
  );
}

/** Its proxies of ambient mode, in a line where there are any. */
function ambient(one: MeshNamespace): string[] {
  const some = [one.waypoints > 0 && count(one.waypoints, "waypoint"), one.ztunnels > 0 && count(one.ztunnels, "ztunnel")].filter(Boolean);
  return some.length > 0 ? [some.join(", ")] : [];
}

function proxies(one: MeshNamespace): string {
  const [some] = ambient(one);
  return some ? `${one.proxies.toLocaleString("en")} (${some})` : one.proxies.toLocaleString("en");
}

/** The weakest mode of mutual TLS among its services. */
function worst(one: MeshNamespace) {
  const demand = ORDER.find((demand) => one.mtls[demand]);
  return demand ? DEMANDS[demand].tone : "plain";
}

function word(one: MeshNamespace): string {
  const some = ORDER.filter((demand) => one.mtls[demand]);
  const [first] = some;
  if (!first) return "";
  return some.length === 1 ? DEMANDS[first].word : `${one.mtls[first]} of ${one.services}: ${DEMANDS[first].word}`;
}

function Demands({ namespace }: { namespace: MeshNamespace }) {
  return (
    <span class="badges">
      {ORDER.filter((demand) => namespace.mtls[demand]).map((demand) => (
        <Badge key={demand} tone={DEMANDS[demand].tone}>{`${namespace.mtls[demand]} ${DEMANDS[demand].word}`}</Badge>
      ))}
    </span>
  );
}
