import "./page.css";

import { render } from "preact";
import { useEffect, useRef } from "preact/hooks";
import type { Health } from "./api";
import { at, useLoaded, usePlace } from "./hooks";
import { Badge } from "./parts";
import { count } from "./words";
import { CallsView } from "./views/calls";
import { CertificatesView } from "./views/certificates";
import { ChangesView } from "./views/changes";
import { MeshView } from "./views/mesh";
import { ServicesView } from "./views/services";
import { ObjectView } from "./views/object";
import { ObjectsView } from "./views/objects";
import { OverviewView } from "./views/overview";
import { PlanView } from "./views/plan";
import { ProxiesView } from "./views/proxies";
import { ProxyView } from "./views/proxy";
import { TraceView } from "./views/trace";

const VIEWS: [place: string, name: string][] = [
  ["", "Overview"],
  ["mesh", "Mesh"],
  ["proxies", "Proxies"],
  ["objects", "Objects"],
  ["changes", "Changes"],
  ["certificates", "Certificates"],
  ["trace", "Trace a request"],
  ["plan", "Plan a change"],
];

function Page() {
  const place = usePlace();
  const health = useLoaded<Health>("/debug/doctor", 5000);
  const [view = "", ...rest] = place;
  const main = useRef<HTMLElement>(null);
  const first = useRef(true);
  const key = place.join("/");
  useEffect(() => {
    document.querySelector(".top [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    // A new view begins at its heading, for the eyes and for screen readers.
    if (first.current) {
      first.current = false;
      return;
    }
    window.scrollTo(0, 0);
    main.current?.querySelector("h1")?.focus({ preventScroll: true });
  }, [key]);
  useEffect(() => {
    document.addEventListener("keydown", toFilter);
    return () => document.removeEventListener("keydown", toFilter);
  }, []);
  return (
    <>
      <a class="skip" href="#main" onClick={skip}>
        Skip to content
      </a>
      <header class="top">
        <a class="brand" href="#/">
          <img src="/assets/icon.svg" alt="" width="22" height="22" />
          Navarch
        </a>
        <nav aria-label="Views">
          <ul>
            {VIEWS.map(([name, text]) => (
              <li key={name}>
                <a href={at(name)} aria-current={view === name ? "page" : undefined}>
                  {text}
                </a>
              </li>
            ))}
          </ul>
        </nav>
        <Standing health={health.value} gone={health.error !== undefined} />
      </header>
      <main id="main" ref={main} tabIndex={-1} key={view}>
        <View view={view} rest={rest} health={health} />
      </main>
      <footer>
        Read-only. <a href="/debug">Debug pages</a>
        {health.value && <span> · Navarch {health.value.version}</span>}
      </footer>
    </>
  );
}

function View({ view, rest, health }: { view: string; rest: string[]; health: ReturnType<typeof useLoaded<Health>> }) {
  const [first, second, third] = rest;
  switch (view) {
    case "":
      return <OverviewView health={health} />;
    case "mesh":
      if (first && second === "calls") return <CallsView key={`${first}/${third ?? ""}`} namespace={first} workload={third ?? ""} />;
      return first ? <ServicesView key={first} namespace={first} /> : <MeshView />;
    case "proxies":
      return first ? <ProxyView key={first} id={first} /> : <ProxiesView />;
    case "objects":
      return first && third ? <ObjectView kind={first} namespace={second ?? ""} name={third} /> : <ObjectsView />;
    case "changes":
      return <ChangesView />;
    case "certificates":
      return <CertificatesView />;
    case "trace":
      return <TraceView proxy={first ?? ""} />;
    case "plan":
      return <PlanView />;
    default:
      return <h1 tabIndex={-1}>Unknown view {view}</h1>;
  }
}

/** The overall state, on every view. */
function Standing({ health, gone }: { health: Health | undefined; gone: boolean }) {
  const wrong = health?.findings.filter((finding) => finding.level === "wrong").length ?? 0;
  return (
    <p class="standing" role="status">
      {gone ? (
        <Badge tone="bad">no answer</Badge>
      ) : !health ? null : wrong > 0 ? (
        <a href="#/">
          <Badge tone="bad">{count(wrong, "problem")}</Badge>
        </a>
      ) : (
        <Badge tone="good">no problems</Badge>
      )}
    </p>
  );
}

function skip(event: Event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

function toFilter(event: KeyboardEvent) {
  const typing = event.target instanceof HTMLElement && event.target.matches("input, textarea, select");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const filter = document.querySelector<HTMLInputElement>("input.filter");
  if (filter) {
    event.preventDefault();
    filter.focus();
    filter.select();
  }
}

const page = document.getElementById("page");
if (page) render(<Page />, page);
