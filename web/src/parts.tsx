// Components that all views share.

import type { ComponentChildren, TargetedKeyboardEvent } from "preact";
import { useEffect, useId, useRef } from "preact/hooks";
import type { Loaded } from "./hooks";
import type { Demand, Standing } from "./api";

export type Tone = "good" | "wait" | "bad" | "plain";

/** A state in a word. The sign and the word repeat what the colour means. */
export function Badge({ tone, children }: { tone: Tone; children: ComponentChildren }) {
  const sign = { good: "✓", wait: "…", bad: "✕", plain: "" }[tone];
  return (
    <span class={`badge ${tone}`}>
      {sign && <span aria-hidden="true">{sign} </span>}
      {children}
    </span>
  );
}

export function StandingBadge({ state }: { state: Standing }) {
  const tone = { synced: "good", lagging: "wait", refused: "bad" } as const;
  return <Badge tone={tone[state]}>{state}</Badge>;
}

export const DEMANDS: Record<Demand, { tone: Tone; word: string; means: string }> = {
  strict: { tone: "good", word: "mTLS only", means: "PeerAuthentication STRICT: plain text is rejected" },
  permissive: { tone: "wait", word: "plain text accepted", means: "PERMISSIVE: mutual TLS and plain text are both accepted" },
  disable: { tone: "bad", word: "plain text only", means: "PeerAuthentication DISABLE: mutual TLS is not used" },
  mixed: { tone: "wait", word: "differs by workload or port", means: "Not the same for all workloads or ports" },
  outside: { tone: "plain", word: "outside the mesh", means: "Mesh policies do not apply" },
};

export function DemandBadge({ demand }: { demand: Demand }) {
  const { tone, word, means } = DEMANDS[demand];
  return (
    <span title={means}>
      <Badge tone={tone}>{word}</Badge>
    </span>
  );
}

/** Shows a loaded value, or why there is none. */
export function Loading<T>({ of, children }: { of: Loaded<T>; children: (value: T) => ComponentChildren }) {
  return (
    <>
      {of.error && (
        <div class="notice bad" role="alert">
          <p>{of.error.message}</p>
          <button type="button" onClick={of.again}>
            Retry
          </button>
        </div>
      )}
      {of.value === undefined ? !of.error && <p class="quiet">Loading…</p> : children(of.value)}
    </>
  );
}

/** The heading of a view, which screen readers announce when the view changes. */
export function Title({ children, note }: { children: ComponentChildren; note?: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    document.title = `${heading.current?.textContent ?? ""} · Navarch`;
  });
  return (
    <header class="title">
      <h1 ref={heading} tabIndex={-1}>
        {children}
      </h1>
      {note && <p class="quiet">{note}</p>}
    </header>
  );
}

/** A filter for rows that contain its words. The key `/` focuses it. */
export function Filter({ value, onChange, label }: { value: string; onChange: (text: string) => void; label: string }) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <input
        id={id}
        type="search"
        class="filter"
        value={value}
        autocomplete="off"
        spellcheck={false}
        aria-keyshortcuts="/"
        onInput={(event) => onChange(event.currentTarget.value)}
      />
    </div>
  );
}

/** A choice of few. */
export function Choice({
  label,
  value,
  all,
  onChange,
}: {
  label: string;
  value: string;
  all: [value: string, text: string][];
  onChange: (value: string) => void;
}) {
  const id = useId();
  return (
    <div class="field">
      <label for={id}>{label}</label>
      <select id={id} value={value} onChange={(event) => onChange(event.currentTarget.value)}>
        {all.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </div>
  );
}

export interface Column<T> {
  name: string;
  cell: (row: T) => ComponentChildren;
  /** Numbers are aligned to the right. */
  number?: boolean;
}

/** A table whose rows become cards on a phone. The arrow keys go from row to row. */
export function Table<T>({
  caption,
  columns,
  rows,
  id,
  empty,
}: {
  caption: string;
  columns: Column<T>[];
  rows: T[];
  id: (row: T) => string | number;
  empty: string;
}) {
  if (rows.length === 0) return <p class="quiet">{empty}</p>;
  return (
    <table onKeyDown={step}>
      <caption class="hidden">{caption}</caption>
      <thead>
        <tr>
          {columns.map((column) => (
            <th key={column.name} scope="col" class={column.number ? "number" : ""}>
              {column.name}
            </th>
          ))}
        </tr>
      </thead>
      <tbody>
        {rows.map((row) => (
          <tr key={id(row)}>
            {columns.map((column, index) =>
              index === 0 ? (
                <th key={column.name} scope="row">
                  {column.cell(row)}
                </th>
              ) : (
                <td key={column.name} data-label={column.name} class={column.number ? "number" : ""}>
                  {column.cell(row)}
                </td>
              ),
            )}
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** Goes to the link or button of the row above or below. */
function step(event: TargetedKeyboardEvent<HTMLTableElement>) {
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!by || !(event.target instanceof HTMLElement) || event.target.matches("input, select, textarea")) return;
  const stops = [...event.currentTarget.querySelectorAll<HTMLElement>("tbody th a, tbody th button")];
  const own = event.target.closest("tr");
  const here = stops.findIndex((stop) => stop.closest("tr") === own);
  const next = stops[here + by];
  if (here >= 0 && next) {
    event.preventDefault();
    next.focus();
  }
}

/** The range of rows shown, and buttons for other ranges. */
export function Pager({ of, what, onMove }: { of: { total: number; offset: number; limit: number; rows: unknown[] }; what: string; onMove: (offset: number) => void }) {
  const { total, offset, limit, rows } = of;
  if (total === 0) return null;
  const last = offset + rows.length;
  return (
    <nav class="pager" aria-label={`Pages of ${what}`}>
      <span>
        {rows.length === total ? `${total.toLocaleString("en")} ${what}` : `${offset + 1} – ${last} of ${total.toLocaleString("en")} ${what}`}
      </span>
      {(offset > 0 || last < total) && (
        <>
          <button type="button" disabled={offset === 0} onClick={() => onMove(Math.max(0, offset - limit))}>
            Previous
          </button>
          <button type="button" disabled={last >= total} onClick={() => onMove(offset + limit)}>
            Next
          </button>
        </>
      )}
    </nav>
  );
}
