import { useState } from "preact/hooks";
import type { Proxies, Proxy } from "../api";
import { path } from "../api";
import { at, useLoaded, useSettled } from "../hooks";
import { Choice, type Column, Filter, Loading, Pager, StandingBadge, Table, Title } from "../parts";
import { ago, count } from "../words";
import { useReplicas } from "./replicas";

const REPLICA: Column<Proxy> = { name: "Replica", cell: (row) => row.replica ?? "" };

const COLUMNS: Column<Proxy>[] = [
  { name: "Proxy", cell: (row) => <a href={at("proxies", row.id)}>{row.proxy}</a> },
  { name: "State", cell: (row) => <StandingBadge state={row.state} /> },
  { name: "Why", cell: (row) => <Why proxy={row} /> },
  { name: "Kind", cell: (row) => row.kind },
  { name: "Version", cell: (row) => row.version ?? "" },
  { name: "Resources", number: true, cell: (row) => row.types.reduce((sum, one) => sum + one.resources, 0).toLocaleString("en") },
  { name: "Connected", cell: (row) => <time dateTime={row.connectedAt}>{ago(row.connectedAt)}</time> },
];

export function ProxiesView() {
  const [filter, setFilter] = useState("");
  const [state, setState] = useState("");
  const [kind, setKind] = useState("");
  const [offset, setOffset] = useState(0);
  const settled = useSettled(filter);
  const loaded = useLoaded<Proxies>(path("view/proxies", { filter: settled, state, kind, offset }), 2000);
  const counts = loaded.value?.counts;
  const kinds = Object.entries(loaded.value?.kinds ?? {}).map(([kind, number]): [string, string] => [kind, `${kind} (${number})`]);
  const replicas = useReplicas().value;
  const asked = loaded.value?.replicas;
  const silent = asked?.filter((one) => one.error) ?? [];
  const several = (asked?.length ?? 0) > 1;
  const alone = replicas && replicas.total > 0 && `Proxies of ${replicas.pod || "this replica"}; ${count(replicas.total, "other replica")} ${replicas.total === 1 ? "has its own proxies" : "have their own proxies"}. navarch dashboard lists those of all replicas.`;
  const note = asked ? several && `Proxies of ${asked.map((one) => `${one.name} (${one.error ? "no answer" : (one.proxies ?? 0).toLocaleString("en")})`).join(", ")}.` : alone;
  const choice = (name: "synced" | "lagging" | "refused"): [string, string] => [name, counts ? `${name} (${counts[name]})` : name];
  return (
    <>
      <Title note={note}>Proxies</Title>
      <div class="controls">
        <Filter label="Filter by name, namespace, version or cluster" value={filter} onChange={(text) => (setFilter(text), setOffset(0))} />
        <Choice
          label="State"
          value={state}
          onChange={(value) => (setState(value), setOffset(0))}
          all={[["", counts ? `all (${counts.chosen})` : "all"], choice("refused"), choice("lagging"), choice("synced")]}
        />
        <Choice label="Kind" value={kind} onChange={(value) => (setKind(value), setOffset(0))} all={[["", "all"], ...kinds]} />
      </div>
      <Loading of={loaded}>
        {(value) => (
          <>
            {silent.map((one) => (
              <p key={one.name} class="notice bad" role="alert">
                {`The proxies of ${one.name} are not listed: ${one.error}`}
              </p>
            ))}
            <Table
              caption="Connected proxies"
              columns={several ? [...COLUMNS, REPLICA] : COLUMNS}
              rows={value.rows}
              id={(row) => `${row.replica ?? ""}/${row.id}`}
              empty={value.counts.all === 0 ? "No proxy is connected to this control plane." : "No matching proxy."}
            />
            <Pager of={value} what="proxies" onMove={setOffset} />
          </>
        )}
      </Loading>
    </>
  );
}

function Why({ proxy }: { proxy: Proxy }) {
  const bad = proxy.types.filter((type) => type.state === proxy.state);
  if (proxy.state === "synced") return <span class="quiet">up to date</span>;
  const names = bad.map((type) => type.type).join(", ");
  const said = bad.find((type) => type.said)?.said;
  if (said) return <span class="said">{`${names}: ${said}`}</span>;
  const waits = bad.some((type) => !type.answered);
  return <span>{waits ? `no response yet to ${names}` : `${names} not sent yet`}</span>;
}
