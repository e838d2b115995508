import type { Replicas } from "../api";
import { useLoaded } from "../hooks";
import { Badge } from "../parts";
import { count } from "../words";

export function useReplicas() {
  return useLoaded<Replicas>("/debug/view/replicas", 5000);
}

/** Numbers by kind of proxy, as in "2 sidecars, 1 waypoint". */
export function kinds(of: Record<string, number>): string {
  return Object.entries(of)
    .map(([kind, number]) => count(number, kind))
    .join(", ");
}

/** The replica that serves this page, and the other replicas. */
export function ReplicasPart({ replicas, listed }: { replicas: Replicas; listed: boolean }) {
  const { pod, proxies, total, others, known, namespace } = replicas;
  const own = proxies === 0 ? "no proxies" : `${count(proxies, "proxy", "proxies")} (${kinds(replicas.kinds)})`;
  return (
    <section aria-label="Replicas">
      <h2>Replicas</h2>
      <p>
        {pod ? <b>{pod}</b> : "This control plane"} serves this page, and {own}.{" "}
        {total === 0 && (known ? "There is no other replica." : "Other replicas are not known to this control plane.")}
        {total > 0 && `There ${total === 1 ? "is 1 other" : `are ${total} others`}. `}
        {total > 0 && (listed ? "Their proxies are also listed here; everything else is about this replica." : "Each replica knows only its own proxies; navarch dashboard lists those of all replicas.")}
      </p>
      {total > 0 && (
        <ul class="list">
          {others.map((one) => (
            <li key={one.pod}>
              <Badge tone={one.ready ? "good" : "wait"}>{one.ready ? "ready" : "not ready"}</Badge> {one.pod}
              <span class="quiet">
                {one.revision && `, revision ${one.revision}`}: <code>{`kubectl port-forward -n ${namespace} pod/${one.pod} 15015:15014`}</code>
              </span>
            </li>
          ))}
          {total > others.length && <li class="quiet">{count(total - others.length, "more replica")}</li>}
        </ul>
      )}
      {total > 0 && (
        <p class="quiet">
          <code>navarch applied</code>, <code>navarch why</code> and <code>navarch doctor</code> query all of them.
        </p>
      )}
    </section>
  );
}
