// The evidence that the user has chosen: the output of `navarch scope suggest -o json`. It stays in this page.

import { useEffect, useState } from "preact/hooks";

export interface Evidence {
  /** The name of the file. */
  name: string;
  /** What is sent to Navarch with a request for edges. */
  body: string;
}

let chosen: Evidence | undefined;
const followers = new Set<(evidence: Evidence | undefined) => void>();

/** The chosen evidence; `undefined` if there is none. */
export function useEvidence(): Evidence | undefined {
  const [evidence, setEvidence] = useState(chosen);
  useEffect(() => {
    followers.add(setEvidence);
    return () => void followers.delete(setEvidence);
  }, []);
  return evidence;
}

export function forget() {
  choose(undefined);
}

/** Takes a file as evidence. Returns why it is none; an empty text if it is. */
export async function take(file: File): Promise<string> {
  try {
    choose({ name: file.name, body: withoutCounters(JSON.parse(await file.text())) });
    return "";
  } catch {
    return `${file.name} is not the output of navarch scope suggest -o json.`;
  }
}

function choose(evidence: Evidence | undefined) {
  chosen = evidence;
  for (const follow of followers) follow(evidence);
}

/** The sums, without what a later run of the command adds to: the last counters of each pod, and clients. */
function withoutCounters(output: unknown): string {
  const { evidence } = output as { evidence: { format: number; workloads: Record<string, object> } };
  const sums = Object.entries(evidence.workloads).map(([name, observed]) => [name, { ...observed, instances: {}, clients: {} }]);
  return JSON.stringify({ evidence: { format: evidence.format, workloads: Object.fromEntries(sums) } });
}
