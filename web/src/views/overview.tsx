import type { Health, Proxies, Rollout } from "../api";
import { path } from "../api";
import { type Loaded, at, useLoaded } from "../hooks";
import { Badge, Loading, Title } from "../parts";
import { ReplicasPart, useReplicas } from "./replicas";

export function OverviewView({ health }: { health: Loaded<Health> }) {
  const proxies = useLoaded<Proxies>(path("view/proxies", { limit: 1 }), 3000);
  const counts = proxies.value?.counts;
  const rollouts = useLoaded<{ rollouts: Rollout[] }>("/debug/rollout", 3000).value?.rollouts.length ?? 0;
  const replicas = useReplicas();
  return (
    <>
      <Title>Overview</Title>
      <Loading of={health}>
        {(health) => (
          <>
            <dl class="figures">
              <Figure name="Services" value={health.services} to={at("mesh")} />
              <Figure name="Proxies" value={counts?.all ?? health.proxies} to={at("proxies")} />
              {counts && (
                <>
                  <Figure name="synced" value={counts.synced} to={at("proxies")} />
                  <Figure name="lagging" value={counts.lagging} to={at("proxies")} />
                  <Figure name="rejected a response" value={counts.refused} to={at("proxies")} bad={counts.refused > 0} />
                </>
              )}
              {rollouts > 0 && <Figure name="rollouts" value={rollouts} to={at("changes")} />}
            </dl>
            <h2>Problems and next steps</h2>
            {health.findings.length === 0 ? (
              <p>
                <Badge tone="good">No problems found.</Badge>
              </p>
            ) : (
              <ul class="findings">
                {health.findings.map((finding, index) => (
                  <li key={index}>
                    <Badge tone={finding.level === "wrong" ? "bad" : "plain"}>{finding.level}</Badge>
                    <div>
                      <p class="said">{finding.what}</p>
                      <p class="quiet">
                        next: <code>{finding.next}</code>
                      </p>
                    </div>
                  </li>
                ))}
              </ul>
            )}
          </>
        )}
      </Loading>
      {replicas.value && <ReplicasPart replicas={replicas.value} listed={(proxies.value?.replicas?.length ?? 0) > 1} />}
    </>
  );
}

function Figure({ name, value, to, bad = false }: { name: string; value: number; to: string; bad?: boolean }) {
  return (
    <div class={bad ? "bad" : ""}>
      <dt>{name}</dt>
      <dd>
        <a href={to}>{value.toLocaleString("en")}</a>
      </dd>
    </div>
  );
}
