import type { Proxies, Resources, Roots, Signer } from "../api";
import { path } from "../api";
import { at, useLoaded } from "../hooks";
import { Badge, Loading, Table, Title } from "../parts";
import { count, day, until } from "../words";

const PHASES: Record<string, string> = {
  settled: "One root signs, and only it is trusted.",
  distributing: "The next root is trusted, and signs once every proxy trusts it.",
  retiring: "The new root signs; the old one is trusted until its certificates have expired.",
};
const ROLES: Record<string, string> = { signing: "signs", next: "signs next", former: "signed before" };
/** A root that expires within this number of days is marked. */
const SOON = 30;

export function CertificatesView() {
  const loaded = useLoaded<Roots>(path("ca"), 5000);
  const isNone = loaded.error?.status === 404;
  return (
    <>
      <Title>Certificates</Title>
      <h2>Roots of the mesh</h2>
      {isNone ? (
        <p class="notice">This control plane does not sign certificates: {loaded.error?.message}</p>
      ) : (
        <Loading of={loaded}>{(roots) => <Standing roots={roots} />}</Loading>
      )}
      <Secrets />
    </>
  );
}

function Standing({ roots }: { roots: Roots }) {
  const ends = (moment: string) => (Date.parse(moment) - Date.now()) / 86_400_000;
  return (
    <>
      {roots.problem && (
        <p class="notice bad" role="alert">
          {roots.problem}
        </p>
      )}
      <p>
        <Badge tone={roots.phase === "settled" ? "good" : "wait"}>{roots.phase}</Badge> {PHASES[roots.phase]}{" "}
        <span class="quiet">Stored in {roots.keptIn}.</span>
      </p>
      {roots.signsAfter && <p>The next root signs after {roots.signsAfter} at the earliest.</p>}
      <Table
        caption="Roots that the mesh trusts"
        rows={roots.roots}
        id={(row) => row.fingerprint}
        empty="No roots."
        columns={[
          { name: "Root", cell: (row) => <code title={row.fingerprint}>{row.fingerprint.slice(0, 16)}</code> },
          { name: "Role", cell: (row) => ROLES[row.role] ?? row.role },
          { name: "Subject", cell: (row) => row.subject },
          {
            name: "Valid",
            cell: (row) => (
              <>
                {day(row.notBefore)} to {day(row.notAfter)}{" "}
                <Badge tone={ends(row.notAfter) < 0 ? "bad" : ends(row.notAfter) < SOON ? "wait" : "good"}>{until(row.notAfter)}</Badge>
              </>
            ),
          },
          { name: "Trusted until", cell: (row) => (row.trustedUntil ? day(row.trustedUntil) : "it expires") },
        ]}
      />
      {roots.signers && <Signers signers={roots.signers} />}
      <h2>Proxies that do not trust all roots yet</h2>
      <Table
        caption="Proxies that lack a root"
        rows={roots.missing}
        id={(row) => row.who}
        empty="All connected proxies trust all roots."
        columns={[
          { name: "Proxy", cell: (row) => row.who },
          { name: "Why", cell: (row) => row.why },
        ]}
      />
    </>
  );
}

/** Other authorities that sign certificates of workloads, with their chains. */
function Signers({ signers }: { signers: Signer[] }) {
  const links = signers.flatMap((signer) => [
    ...signer.chain.map((link) => ({ ...link, signer: signer.name, role: "issuer", isNew: false })),
    ...signer.roots.map((root) => ({ ...root, signer: signer.name, role: "root", isNew: !root.isDistributed })),
  ]);
  const unavailable = signers.flatMap((signer) =>
    signer.unavailable.map((where) => ({ ...where, signer: signer.name })),
  );
  return (
    <>
      <h2>Signers of workloads</h2>
      <Table
        caption="Signers of workload certificates"
        rows={signers}
        id={(row) => row.name}
        empty="No signers."
        columns={[
          { name: "Signer", cell: (row) => row.name },
          { name: "Namespaces", cell: (row) => row.namespaces.join(", ") || "all others" },
          { name: "State", cell: (row) => <State of={row} /> },
          { name: "Last signed", cell: (row) => row.lastSuccess ?? "never" },
          { name: "Last error", cell: (row) => row.away ?? (row.lastError ? `${row.lastErrorAt}: ${row.lastError}` : "none") },
        ]}
      />
      {unavailable.length > 0 && (
        <Table
          caption="Namespaces for which a signer is unavailable"
          rows={unavailable}
          id={(row) => `${row.signer} ${row.namespace}`}
          empty="None."
          columns={[
            { name: "Namespace", cell: (row) => row.namespace },
            { name: "Signer", cell: (row) => row.signer },
            { name: "Why", cell: (row) => row.why },
          ]}
        />
      )}
      <Table
        caption="Chains of signers"
        rows={links}
        id={(row) => `${row.signer} ${row.subject} ${row.notAfter}`}
        empty="No chain is known yet."
        columns={[
          { name: "Signer", cell: (row) => row.signer },
          { name: "Role", cell: (row) => (row.isNew ? `${row.role}, being distributed` : row.role) },
          { name: "Subject", cell: (row) => row.subject },
          { name: "Ends", cell: (row) => <>{day(row.notAfter)} ({until(row.notAfter)})</> },
        ]}
      />
    </>
  );
}

function State({ of: signer }: { of: Signer }) {
  if (signer.away) {
    return <Badge tone="bad">away</Badge>;
  }
  const namespaces = signer.unavailable.length;
  if (namespaces > 0) {
    return <Badge tone="wait">{`unavailable for ${count(namespaces, "namespace", "namespaces")}`}</Badge>;
  }
  return <Badge tone="good">reachable</Badge>;
}

/** The certificates that proxies were sent by SDS: those of gateways. */
function Secrets() {
  const loaded = useLoaded<Proxies>(path("view/proxies", { limit: 200 }), 5000);
  return (
    <>
      <h2>Certificates of gateways</h2>
      <Loading of={loaded}>
        {(value) => {
          const some = value.rows.filter((row) => row.types.some((type) => type.type === "sds" && type.resources > 0));
          return some.length === 0 ? (
            <p class="quiet">{`The control plane sent no certificates to any of ${count(value.rows.length, "proxy", "proxies")}. Agents manage the certificates of workloads.`}</p>
          ) : (
            <ul class="list">
              {some.map((proxy) => (
                <li key={proxy.id}>
                  <a href={at("proxies", proxy.id)}>{proxy.proxy}</a> <Names id={proxy.id} />
                </li>
              ))}
            </ul>
          );
        }}
      </Loading>
    </>
  );
}

function Names({ id }: { id: string }) {
  const loaded = useLoaded<Resources>(path("view/resources", { proxyID: id, type: "sds" }), 10_000);
  return <>{loaded.value?.rows.map((row) => row.name).join(", ")}</>;
}
