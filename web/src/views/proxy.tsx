import { useState } from "preact/hooks";
import type { Proxies, ProxyScope, Resource, Resources, WhyProxy, WhyPush } from "../api";
import { path } from "../api";
import { at, useLoaded, useSettled } from "../hooks";
import { Badge, Choice, Filter, Loading, Pager, StandingBadge, Table, Title } from "../parts";
import { ago, bytes, milliseconds, time } from "../words";

/** One proxy: the state of each type, its resources with their source objects, and its last pushes. */
export function ProxyView({ id }: { id: string }) {
  const [type, setType] = useState("");
  const [filter, setFilter] = useState("");
  const [offset, setOffset] = useState(0);
  const settled = useSettled(filter);
  const found = useLoaded<Proxies>(path("view/proxies", { filter: id, limit: 10 }), 2000);
  const proxy = found.value?.rows.find((row) => row.id === id);
  const resources = useLoaded<Resources>(path("view/resources", { proxyID: id, type, filter: settled, offset }), 5000);
  return (
    <>
      <p class="crumbs">
        <a href={at("proxies")}>Proxies</a>
      </p>
      <Title note={proxy && `${proxy.kind} · ${proxy.address ?? "no address"} · version ${proxy.version ?? "unknown"} · connected ${ago(proxy.connectedAt)}`}>
        {id}
      </Title>
      {found.value && !proxy && (
        <p class="notice bad" role="alert">
          This proxy is no longer connected to this control plane.
        </p>
      )}
      {proxy && (
        <>
          <p>
            <StandingBadge state={proxy.state} /> <a href={at("trace", proxy.proxy)}>Trace a request from it</a>
          </p>
          <h2>Types</h2>
          <Table
            caption="Subscriptions by type"
            rows={proxy.types}
            id={(row) => row.type}
            empty="No subscriptions."
            columns={[
              { name: "Type", cell: (row) => row.type },
              { name: "State", cell: (row) => <StandingBadge state={row.state} /> },
              { name: "Resources", number: true, cell: (row) => row.resources.toLocaleString("en") },
              { name: "Last sent", cell: (row) => (row.sentAt ? ago(row.sentAt) : "not yet") },
              { name: "Envoy's error", cell: (row) => row.said && <span class="said">{row.said}</span> },
            ]}
          />
        </>
      )}
      <h2>Resources and their source objects</h2>
      <div class="controls">
        <Filter label="Filter by name" value={filter} onChange={(text) => (setFilter(text), setOffset(0))} />
        <Choice
          label="Type"
          value={type}
          onChange={(value) => (setType(value), setOffset(0))}
          all={[["", "all"], ...(resources.value?.types ?? []).map((one): [string, string] => [one.type, `${one.type} (${one.resources})`])]}
        />
      </div>
      <Loading of={resources}>
        {(value) => (
          <>
            <ul class="resources">
              {value.rows.map((row) => (
                <ResourceRow key={`${row.type} ${row.name}`} id={id} proxy={value.proxy} resource={row} />
              ))}
            </ul>
            {value.rows.length === 0 && <p class="quiet">No matching resource.</p>}
            <Pager of={value} what="resources" onMove={setOffset} />
            <Pushes proxy={value.proxy} />
          </>
        )}
      </Loading>
    </>
  );
}

function ResourceRow({ id, proxy, resource }: { id: string; proxy: string; resource: Resource }) {
  const [open, setOpen] = useState(false);
  return (
    <li>
      <button type="button" class="row" aria-expanded={open} onClick={() => setOpen(!open)}>
        <span class="type">{resource.type}</span>
        <span class="name">{resource.name}</span>
        <span class="quiet">{bytes(resource.bytes)}</span>
      </button>
      {open && <Whole id={id} proxy={proxy} resource={resource} />}
    </li>
  );
}

/** One resource with its source objects. */
function Whole({ id, proxy, resource }: { id: string; proxy: string; resource: Resource }) {
  const { type, name } = resource;
  const made = useLoaded<WhyProxy>(path("why/proxy", { proxy, resource: name, type }));
  const whole = useLoaded<unknown>(path("view/resources", { proxyID: id, type, name }));
  return (
    <div class="whole">
      <h3>Source objects</h3>
      <Loading of={made}>
        {(value) => (
          <ol class="makers">
            {(value.resources[0]?.objects ?? []).map((one) => (
              <li key={one.object}>
                <Maker object={one.object} />
                {one.generation ? <span class="quiet"> generation {one.generation}</span> : null}
              </li>
            ))}
          </ol>
        )}
      </Loading>
      <h3>As sent</h3>
      <Loading of={whole}>{(value) => <pre tabIndex={0}>{JSON.stringify(value, null, 2)}</pre>}</Loading>
    </div>
  );
}

/** An object, with a link where it is one of Istio's. */
export function Maker({ object }: { object: string }) {
  const [kind = "", name = ""] = object.split(" ");
  const [namespace, own] = name.split("/");
  const known = /^(VirtualService|DestinationRule|Gateway|ServiceEntry|WorkloadEntry|Sidecar|EnvoyFilter|ProxyConfig|PeerAuthentication|AuthorizationPolicy|RequestAuthentication|Telemetry|WasmPlugin|TrafficExtension)$/;
  return known.test(kind) && namespace && own ? <a href={at("objects", kind, namespace, own)}>{object}</a> : <>{object}</>;
}

/** Which clusters a sidecar with a learned scope has, and why. */
function Scope({ scope }: { scope: ProxyScope }) {
  const number = (count: number) => count.toLocaleString("en");
  return (
    <>
      <h2>Scope</h2>
      {scope.form === "learned" ? (
        <p>
          Learned: {number(scope.clusters)} of {number(scope.of)} clusters ({number(scope.used)} used by its workload, {number(scope.neverLazy)} never lazy,{" "}
          {number(scope.requested)} requested by its Envoy); others on demand.
        </p>
      ) : (
        <p>Whole now, though it started with a learned one: the label was removed, or an object needs all clusters.</p>
      )}
    </>
  );
}

function Pushes({ proxy }: { proxy: string }) {
  const loaded = useLoaded<WhyPush>(path("why/push", { proxy }), 2000);
  return (
    <>
      {loaded.value?.scope && <Scope scope={loaded.value.scope} />}
      <h2>Last pushes</h2>
      <Loading of={loaded}>
        {(value) => (
          <Table
            caption="The last responses, newest first"
            rows={value.pushes}
            id={(row) => `${row.at} ${row.type}`}
            empty="Nothing was sent yet."
            columns={[
              { name: "Type", cell: (row) => row.type },
              { name: "At", cell: (row) => <time dateTime={row.at}>{time(row.at)}</time> },
              { name: "For", cell: (row) => row.causes.join(", ") },
              { name: "Resources", number: true, cell: (row) => `${row.resources}${row.removed ? `, ${row.removed} removed` : ""}` },
              { name: "Size", number: true, cell: (row) => bytes(row.bytes) },
              {
                name: "Answer",
                cell: (row) =>
                  row.answeredMs === null ? (
                    <Badge tone="wait">none yet</Badge>
                  ) : (
                    <Badge tone={row.taken ? "good" : "bad"}>{`${row.taken ? "ACK" : "NACK"} after ${milliseconds(row.answeredMs)}`}</Badge>
                  ),
              },
            ]}
          />
        )}
      </Loading>
    </>
  );
}
