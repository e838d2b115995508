import { useState } from "preact/hooks";
import type { Change, Rows } from "../api";
import { path } from "../api";
import { useLoaded } from "../hooks";
import { Badge, type Column, Loading, Table, Title } from "../parts";
import { ago, count, milliseconds, time } from "../words";
import { Maker } from "./proxy";
import { Rollouts } from "./rollouts";

const COLUMNS: Column<Change>[] = [
  { name: "What changed", cell: (row) => <What change={row} /> },
  {
    name: "When",
    cell: (row) => (
      <time dateTime={row.at} title={row.at}>
        {time(row.at)} <span class="quiet">{ago(row.at)}</span>
      </time>
    ),
  },
  { name: "Computed in", number: true, cell: (row) => milliseconds(row.tookMs) },
  { name: "First sent after", number: true, cell: (row) => (row.firstSentMs === null ? "" : milliseconds(row.firstSentMs)) },
  {
    name: "Last ACK after",
    number: true,
    cell: (row) => (row.waiting + row.behind > 0 || row.lastAnswerMs === null ? "" : milliseconds(row.lastAnswerMs)),
  },
  { name: "Proxies", cell: (row) => <Answers change={row} /> },
];

export function ChangesView() {
  const [paused, setPaused] = useState(false);
  const loaded = useLoaded<Rows<Change>>(path("view/changes", { limit: 50 }), paused ? 0 : 1000);
  return (
    <>
      <Title note="The last changes of the mesh, newest first. Times are measured from when Navarch read the change.">Changes</Title>
      <Rollouts />
      <div class="controls">
        <button type="button" aria-pressed={paused} onClick={() => setPaused(!paused)}>
          {paused ? "Resume" : "Pause"}
        </button>
        <p class="quiet" role="status">
          {paused ? "Paused." : "Live."}
        </p>
      </div>
      <Loading of={loaded}>
        {(value) => <Table caption="The last changes" columns={COLUMNS} rows={value.rows} id={(row) => row.revision} empty="Nothing has changed yet." />}
      </Loading>
    </>
  );
}

function What({ change }: { change: Change }) {
  const { objects, others, facts } = change;
  const names = objects.length + others.length;
  if (names === 0) return <>{count(facts, "derived change")}</>;
  return (
    <ul class="list">
      {objects.map((one) => (
        <li key={one.name}>
          <Maker object={one.name} />
          {one.generation === null ? " removed" : one.generation > 0 ? ` generation ${one.generation}` : ""}
        </li>
      ))}
      {others.map((one) => (
        <li key={one}>{one}</li>
      ))}
      {facts > names && names >= 8 && <li class="quiet">and others: {count(facts, "change")} in total</li>}
    </ul>
  );
}

function Answers({ change }: { change: Change }) {
  const { taken, refused, waiting, behind } = change;
  if (taken + refused + waiting === 0) return <span class="quiet">no proxy is affected</span>;
  return (
    <span class="badges">
      {refused > 0 && <Badge tone="bad">{`${refused} rejected`}</Badge>}
      {waiting > 0 && <Badge tone="wait">{`${waiting} pending`}</Badge>}
      {behind > 0 && (
        <span title="They have older unanswered responses, so this one may have to wait">
          <Badge tone="wait">{`${behind} ${behind === 1 ? "lags" : "lag"} behind`}</Badge>
        </span>
      )}
      {taken > 0 && <Badge tone="good">{`${taken} acknowledged`}</Badge>}
    </span>
  );
}
