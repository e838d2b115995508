// The debug pages of Navarch: their responses, and requests to them.

/** Some rows of a long list. */
export interface Rows<T> {
  total: number;
  offset: number;
  limit: number;
  rows: T[];
}

export type Standing = "synced" | "lagging" | "refused";

export interface ProxyType {
  type: string;
  state: Standing;
  resources: number;
  sentAt: string | null;
  answered: boolean;
  said: string | null;
}

export interface Proxy {
  id: string;
  proxy: string;
  namespace: string;
  kind: string;
  address: string | null;
  version: string | null;
  cluster: string | null;
  /** Whether its scope was learned when its stream started. */
  hasLearnedScope: boolean;
  connectedAt: string;
  state: Standing;
  types: ProxyType[];
  /** The replica that it is connected to, if several were queried (`navarch dashboard`). */
  replica?: string;
}

export interface Proxies extends Rows<Proxy> {
  counts: { all: number; chosen: number; synced: number; lagging: number; refused: number };
  kinds: Record<string, number>;
  /** The replicas that were queried, if there can be several. */
  replicas?: { name: string; proxies?: number; error?: string }[];
}

/** The replica that responds, and the pods of the other replicas, whose proxies it does not know. */
export interface Replicas {
  pod: string;
  namespace: string;
  proxies: number;
  kinds: Record<string, number>;
  /** Whether the pods of control planes are known, including that of this replica. */
  known: boolean;
  total: number;
  others: { pod: string; ready: boolean; revision: string | null }[];
}

export type RolloutState = "waiting" | "rolling" | "paused" | "stopped";

export interface Rollout {
  object: string;
  generation: number;
  before: number | null;
  state: RolloutState;
  stage: number;
  stages: string[];
  seconds: number;
  reached: number;
  taken: number;
  pendingProxies: string[];
  withoutIdentity: number;
  leftBehind: number;
  reason: string;
}

export interface Resource {
  type: string;
  name: string;
  version: string;
  bytes: number;
}

export interface Resources extends Rows<Resource> {
  proxy: string;
  types: { type: string; resources: number }[];
}

export interface WhyProxy {
  resources: { type: string; version: string; objects: { object: string; generation: number | null }[] }[];
}

/** The scope of a sidecar with the label `navarch.io/scope: learned`: its clusters by reason. */
export type ProxyScope =
  | { form: "learned"; clusters: number; of: number; used: number; neverLazy: number; requested: number }
  | { form: "whole" };

export interface WhyPush {
  scope?: ProxyScope;
  pushes: Pushed[];
}

export interface Pushed {
  at: string;
  type: string;
  causes: string[];
  resources: number;
  removed: number;
  bytes: number;
  answeredMs: number | null;
  taken: boolean | null;
}

export interface MeshObject {
  kind: string;
  namespace: string;
  name: string;
  inForce: boolean;
  generation: number | null;
  created: string | null;
  reached: number | null;
  taken: number | null;
  problems: { level: "error" | "warning"; text: string }[];
  moreProblems: number;
  quarantined: { said: string; servesBefore: boolean } | null;
}

export interface MeshObjects extends Rows<MeshObject> {
  kinds: Record<string, number>;
  withProblems: number;
}

export interface Applied {
  generation: number;
  reached: number;
  taken: number;
  pending: number;
  pendingProxies: { proxy: string; types: string[]; sinceSeconds: number | null }[];
  refused: number;
  refusedProxies: { proxy: string; type: string; said: string }[];
  rollout: RolloutState | null;
}

export interface Change {
  revision: number;
  at: string;
  objects: { name: string; generation: number | null }[];
  others: string[];
  facts: number;
  results: number;
  tookMs: number;
  taken: number;
  refused: number;
  waiting: number;
  behind: number;
  firstSentMs: number | null;
  lastAnswerMs: number | null;
}

export type Demand = "strict" | "permissive" | "disable" | "mixed" | "outside";

export interface Callers {
  anyone: boolean;
  nobody: boolean;
  namespaces: string[];
  accounts: string[];
  others: string[];
  withConditions: boolean;
  deniedBy: string[];
  askedBy: string[];
  allowedBy: string[];
}

export interface Service {
  name: string;
  host: string;
  object: string;
  ports: { port: number; protocol: string }[];
  visibleTo: string[] | null;
  access: { mtls: Demand; workloads: number; speaking: number; captured: number; callers: Callers };
  waypoint?: { name: string; namespace: string };
}

export interface MeshNamespace {
  name: string;
  services: number;
  proxies: number;
  mtls: Partial<Record<Demand, number>>;
  open: number;
  waypoints: number;
  ztunnels: number;
}

export interface Mesh {
  total: number;
  services: number;
  root: string;
  namespaces: MeshNamespace[];
  arrows: { from: string; to: string; services: number }[];
  moreArrows: number;
}

export interface Services extends Rows<Service> {
  namespace: string;
}

export type EdgeClass = "used" | "denied" | "allowed";

/** A workload, a service, and the calls between them. */
export interface Edge {
  /** Namespace and name of the workload. */
  from: string;
  /** The host of the service. */
  to: string;
  toNamespace: string | null;
  class: EdgeClass;
  requests: number;
  connections: number;
  failed: number;
  denied: number;
  lastSeen: string | null;
  perSecond: number | null;
  note: string | null;
}

export interface Edges extends Rows<Edge> {
  namespace: string;
  /** The replica that has answered: workloads without evidence, and what is allowed, are of its proxies alone. */
  replica: string;
  /** The number of sidecars of the namespace that are connected to it. */
  sidecars: number;
  /** Whether there is evidence. */
  isRead: boolean;
  since: string | null;
  read: string | null;
  counts: { used: number; denied: number };
  workloads: { name: string; isRead: boolean }[];
  moreWorkloads: number;
  allowed: { rows: Edge[]; refused: number; more: number; moreWorkloads: number } | null;
}

export interface Health {
  version: string;
  proxies: number;
  services: number;
  results: number;
  findings: { level: "wrong" | "note"; what: string; next: string }[];
}

export interface Roots {
  phase: string;
  origin: string;
  keptIn: string;
  roots: { role: string; subject: string; fingerprint: string; notBefore: string; notAfter: string; trustedUntil?: string }[];
  signsAfter?: string;
  missing: { who: string; why: string }[];
  problem?: string;
  signers?: Signer[];
}

/** Another authority that signs certificates of workloads. */
export interface Signer {
  name: string;
  namespaces: string[];
  away?: string;
  /** Namespaces for which it is unavailable; it signs for all others. */
  unavailable: { namespace: string; why: string }[];
  lastSuccess?: string;
  lastError?: string;
  lastErrorAt?: string;
  chain: { subject: string; notBefore: string; notAfter: string }[];
  roots: { subject: string; fingerprint: string; notBefore: string; notAfter: string; isDistributed: boolean }[];
  missing: { who: string; why: string }[];
}

export interface WhyNot {
  request: string;
  steps: string[];
  reason: string | null;
  advice: string | null;
  unknown: string[];
}

export type Action = "added" | "changed" | "removed" | "unchanged" | "refused" | "ignored";

export interface Plan {
  objects: { place: string; object: string; action: Action; errors: string[]; warnings: string[] }[];
  proxies: number;
  reached: number;
  workloads: Record<string, number>;
  types: Record<string, { added: number; changed: number; removed: number; proxies: number }>;
  resources: { type: string; name: string; action: Action; proxies: number; diff: string }[];
  traffic: { request: string; from: string[]; before: string; after: string }[];
  leftOut: string[];
  refused: { type: string; name: string; proxies: number; reason: string }[];
  bytes: number;
  more: string[];
}

/** A failed request: the text is the reason. */
export class RequestError extends Error {
  constructor(readonly status: number, text: string) {
    super(text);
  }
}

/** A path with the parameters that are set. */
export function path(page: string, parameters: Record<string, string | number | boolean | undefined> = {}): string {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    if (value !== undefined && value !== "" && value !== false) query.set(name, value === true ? "" : String(value));
  }
  const text = query.toString();
  return `/debug/${page}${text && `?${text}`}`;
}

/** Requests a page. */
export async function ask<T>(page: string, options: RequestInit = {}): Promise<T> {
  let response: Response;
  try {
    response = await fetch(page, { ...options, headers: { accept: "application/json", ...options.headers } });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new RequestError(0, "Navarch does not answer. Check that it is running and that port forwarding still works.");
  }
  if (response.ok) return (await response.json()) as T;
  throw new RequestError(response.status, told(response.status, (await response.text()).trim()));
}

function told(status: number, text: string): string {
  switch (status) {
    case 401:
    case 403:
      return "Navarch denied access. Use navarch dashboard --token-file, or open the page on its own machine.";
    case 429:
      return "Another request is in progress. Try again in a moment.";
    default:
      return text || `Unexpected HTTP status ${status}.`;
  }
}
