import { useState } from "preact/hooks";
import type { MeshObject, MeshObjects } from "../api";
import { path } from "../api";
import { at, useLoaded, useSettled } from "../hooks";
import { Badge, Choice, type Column, Filter, Loading, Pager, Table, Title } from "../parts";
import { count } from "../words";

const COLUMNS: Column<MeshObject>[] = [
  {
    name: "Object",
    cell: (row) => (
      <a href={at("objects", row.kind, row.namespace, row.name)}>
        {row.namespace}/{row.name}
      </a>
    ),
  },
  { name: "Kind", cell: (row) => row.kind },
  { name: "State", cell: (row) => <State object={row} /> },
  { name: "Affects", number: true, cell: (row) => (row.reached === null ? "" : count(row.reached, "proxy", "proxies")) },
  { name: "Problems", cell: (row) => <Problems object={row} /> },
];

export function ObjectsView() {
  const [filter, setFilter] = useState("");
  const [kind, setKind] = useState("");
  const [problems, setProblems] = useState("");
  const [offset, setOffset] = useState(0);
  const settled = useSettled(filter);
  const loaded = useLoaded<MeshObjects>(path("view/objects", { filter: settled, kind, problems: problems !== "", offset }), 3000);
  const kinds = Object.entries(loaded.value?.kinds ?? {}).map(([kind, number]): [string, string] => [kind, `${kind} (${number})`]);
  return (
    <>
      <Title>Objects</Title>
      <div class="controls">
        <Filter label="Filter by kind, namespace or name" value={filter} onChange={(text) => (setFilter(text), setOffset(0))} />
        <Choice label="Kind" value={kind} onChange={(value) => (setKind(value), setOffset(0))} all={[["", "all"], ...kinds]} />
        <Choice
          label="Show"
          value={problems}
          onChange={(value) => (setProblems(value), setOffset(0))}
          all={[
            ["", "all"],
            ["problems", `with problems (${loaded.value?.withProblems ?? 0})`],
          ]}
        />
      </div>
      <Loading of={loaded}>
        {(value) => (
          <>
            <Table caption="Istio objects" columns={COLUMNS} rows={value.rows} id={(row) => `${row.kind}/${row.namespace}/${row.name}`} empty="No matching object." />
            <Pager of={value} what="objects" onMove={setOffset} />
          </>
        )}
      </Loading>
    </>
  );
}

/** Whether an object is valid, and how many proxies acknowledged it. */
export function State({ object }: { object: MeshObject }) {
  if (object.quarantined) return <Badge tone="bad">quarantined</Badge>;
  if (object.problems.some((problem) => problem.level === "error")) {
    return <Badge tone="bad">{object.inForce ? "the latest version is rejected" : "rejected"}</Badge>;
  }
  if (object.reached === null || object.taken === null) return <Badge tone="bad">not active</Badge>;
  if (object.reached === 0) return <Badge tone="plain">affects no proxy</Badge>;
  if (object.taken < object.reached) return <Badge tone="wait">{`acknowledged by ${object.taken} of ${object.reached}`}</Badge>;
  return <Badge tone="good">acknowledged by all</Badge>;
}

export function Problems({ object }: { object: MeshObject }) {
  const { problems, moreProblems, quarantined } = object;
  if (problems.length === 0 && !quarantined) return <span class="quiet">none</span>;
  return (
    <ul class="problems">
      {quarantined && (
        <li class="said">
          {`Envoy rejected it: ${quarantined.said}. Proxies use ${quarantined.servesBefore ? "its previous version" : "no version of it"}.`}
        </li>
      )}
      {problems.map((problem, index) => (
        <li key={index} class="said">
          {`${problem.level}: ${problem.text}`}
        </li>
      ))}
      {moreProblems > 0 && <li>{count(moreProblems, "more problem")}</li>}
    </ul>
  );
}
