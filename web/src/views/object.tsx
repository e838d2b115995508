import type { Applied, MeshObject, MeshObjects } from "../api";
import { path } from "../api";
import { at, useLoaded } from "../hooks";
import { Badge, Loading, Table, Title } from "../parts";
import { count } from "../words";
import { Problems, State } from "./objects";

/** One object: which proxies acknowledged it and which did not. */
export function ObjectView({ kind, namespace, name }: { kind: string; namespace: string; name: string }) {
  const found = useLoaded<MeshObjects>(path("view/objects", { kind, namespace, filter: name, limit: 200 }), 3000);
  const object = found.value?.rows.find((row) => row.name === name);
  return (
    <>
      <p class="crumbs">
        <a href={at("objects")}>Objects</a>
      </p>
      <Title note={object && (object.generation ? `generation ${object.generation}` : undefined)}>
        {kind} {namespace}/{name}
      </Title>
      <Loading of={found}>
        {() => (object ? <Found object={object} /> : <p class="notice bad">The object does not exist.</p>)}
      </Loading>
    </>
  );
}

function Found({ object }: { object: MeshObject }) {
  const named = `${object.kind}/${object.namespace}/${object.name}`;
  const applied = useLoaded<Applied>(object.inForce ? path("applied", { object: named }) : undefined, 3000);
  return (
    <>
      <p>
        <State object={object} />
      </p>
      <h2>Problems</h2>
      <Problems object={object} />
      <h2>Proxies</h2>
      {!object.inForce && <p>Not active: no proxy uses it.</p>}
      {object.inForce && (
        <Loading of={applied}>
          {(value) => (
            <>
              {value.rollout && (
                <p>
                  <Badge tone={value.rollout === "stopped" ? "bad" : "wait"}>{`rollout: ${value.rollout}`}</Badge> <a href={at("changes")}>Rollouts</a>
                </p>
              )}
              <p>{`It affects ${count(value.reached, "proxy", "proxies")}: acknowledged by ${value.taken}, pending at ${value.pending}, rejected by ${value.refused}.`}</p>
              {value.refusedProxies.length + value.pendingProxies.length > 0 && (
                <Table
                  caption="Proxies that have not acknowledged it"
                  rows={[
                    ...value.refusedProxies.map((one) => ({ proxy: one.proxy, what: one.type, bad: true, said: one.said })),
                    ...value.pendingProxies.map((one) => ({
                      proxy: one.proxy,
                      what: one.types.join(", "),
                      bad: false,
                      said: one.sinceSeconds === null ? "not sent yet" : `sent ${Math.round(one.sinceSeconds)} s ago`,
                    })),
                  ]}
                  id={(row) => row.proxy}
                  empty=""
                  columns={[
                    { name: "Proxy", cell: (row) => row.proxy },
                    { name: "State", cell: (row) => <Badge tone={row.bad ? "bad" : "wait"}>{row.bad ? "rejected" : "pending"}</Badge> },
                    { name: "Types", cell: (row) => row.what },
                    { name: "Why", cell: (row) => <span class="said">{row.said}</span> },
                  ]}
                />
              )}
            </>
          )}
        </Loading>
      )}
    </>
  );
}
