// Boxes and arrows from left to right. The arrows alone determine the places of the boxes, so that a graph always looks the same.

import { useId, useState } from "preact/hooks";

export interface Box {
  id: string;
  /** One to four lines. */
  lines: string[];
  tone: "good" | "wait" | "bad" | "plain";
  /** The target of its link. */
  href?: string | undefined;
  /** Its column, if the arrows do not determine it. */
  column?: number;
}

export interface Arrow {
  from: string;
  to: string;
  text?: string;
  /** Its meaning, if it is not that one may call the other. */
  means?: string;
  /** Its line, if it is not a plain one. */
  style?: Style;
}

/** The line of an arrow. */
export type Style =
  /** Calls: its width follows the calls in a second, and the share `bad` of it is red. */
  | { kind: "used"; label: string; weight: number; bad: number }
  /** Red, with a cross. */
  | { kind: "denied" }
  /** Thin and dashed. */
  | { kind: "allowed" };

const WIDTH = 216;
const LINE = 17;
const GAP = 14;
const AISLE = 92;
/** How far arrows within one column extend beyond it. */
const BOW = 60;
/** With more arrows than this, only those of the box under the pointer or with the focus are drawn. */
const CROWDED = 150;
/** With more arrows than this, none has a label. */
const LABELLED = 40;
/** Where the labels of neighbouring arrows are, so that few overlap. */
const LABEL_AT = [0.5, 0.36, 0.64];
/** The shortest red part, as a share of the arrow. */
const VISIBLE = 0.05;
/** Half the size of a cross. */
const CROSS = 6;

/** The column of each box: one right of all that point at it, as far as arrows make no ring. */
export function columns(boxes: Box[], arrows: Arrow[]): Map<string, number> {
  const column = new Map(boxes.map((box) => [box.id, 0]));
  const into = new Map<string, string[]>();
  for (const { from, to } of arrows) {
    if (from !== to && column.has(from) && column.has(to)) into.set(to, [...(into.get(to) ?? []), from]);
  }
  const done = new Set<string>();
  const visit = (id: string, way: Set<string>): number => {
    if (done.has(id)) return column.get(id) ?? 0;
    way.add(id);
    const before = (into.get(id) ?? []).filter((from) => !way.has(from));
    const own = Math.max(-1, ...before.map((from) => visit(from, way))) + 1;
    way.delete(id);
    column.set(id, Math.min(own, 3));
    done.add(id);
    return column.get(id) ?? 0;
  };
  for (const box of boxes) {
    visit(box.id, new Set());
    if (box.column !== undefined) column.set(box.id, box.column);
  }
  return column;
}

/** `aisle` is the width between columns: labels need more. */
export function Graph({ boxes, arrows: all, label, aisle = AISLE }: { boxes: Box[]; arrows: Arrow[]; label: string; aisle?: number }) {
  const id = useId();
  const [active, setActive] = useState<string>();
  const known = new Set(boxes.map((box) => box.id));
  const drawable = all.filter(({ from, to }) => from !== to && known.has(from) && known.has(to));
  const crowded = drawable.length > CROWDED;
  const arrows = crowded ? drawable.filter(({ from, to }) => from === active || to === active) : drawable;
  const column = columns(boxes, crowded ? [] : arrows);
  const filled = [...new Set(column.values())].sort((a, b) => a - b);
  const places = new Map<string, { x: number; y: number; height: number }>();
  let height = 0;
  filled.forEach((number, index) => {
    let y = 8;
    for (const box of boxes.filter((box) => column.get(box.id) === number)) {
      const own = 18 + box.lines.length * LINE;
      places.set(box.id, { x: 8 + index * (WIDTH + aisle), y, height: own });
      y += own + GAP;
    }
    height = Math.max(height, y);
  });
  // Those of one column alone stand beside each other, too.
  const across = filled.length === 1 && boxes.length > 1 ? Math.min(4, boxes.length) : 0;
  if (across > 0) {
    const own = Math.max(...[...places.values()].map((place) => place.height));
    boxes.forEach((box, index) => {
      places.set(box.id, { x: 8 + (index % across) * (WIDTH + 24), y: 8 + Math.floor(index / across) * (own + GAP), height: own });
    });
    height = 8 + Math.ceil(boxes.length / across) * (own + GAP);
  }
  const width = Math.max(...[...places.values()].map((place) => place.x + WIDTH)) + (all.length > 0 ? BOW : 8);
  return (
    <>
      <div class="graph" role="region" aria-label={label} tabIndex={0}>
        <svg width={width} height={height} viewBox={`0 0 ${width} ${height}`} role="group" aria-label={label}>
          <defs>
            {["plain", "used", "failed", "denied", "allowed"].map((kind) => (
              <marker key={kind} id={`${id}head${kind}`} viewBox="0 0 8 8" refX="7" refY="4" markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto">
                <path d="M0 0 8 4 0 8z" class={`head ${kind}`} />
              </marker>
            ))}
          </defs>
          {arrows.map((arrow) => {
            const [from, to] = [places.get(arrow.from), places.get(arrow.to)];
            if (!from || !to) return null;
            return <ArrowShape key={`${arrow.from}>${arrow.to}`} arrow={arrow} curve={curve(from, to)} head={`${id}head`} />;
          })}
          {arrows.length <= LABELLED &&
            arrows.map(({ from, to, style }, index) => {
              const [start, end] = [places.get(from), places.get(to)];
              if (style?.kind !== "used" || !start || !end) return null;
              const [x, y] = curve(start, end).point(LABEL_AT[index % LABEL_AT.length] ?? 0.5);
              return (
                <text key={`${from}>${to}`} class="rate" x={x} y={y + 4} text-anchor="middle">
                  {style.label}
                </text>
              );
            })}
          {boxes.map((box) => {
            const place = places.get(box.id);
            return place && <BoxShape key={box.id} box={box} place={place} choose={crowded ? () => setActive(box.id) : undefined} />;
          })}
        </svg>
      </div>
      {crowded && (
        <p class="quiet">
          {drawable.length.toLocaleString("en")} arrows are too many to draw at once: point at a box, or focus it with Tab, to see its arrows.
        </p>
      )}
    </>
  );
}

type Place = { x: number; y: number; height: number };

type Point = [x: number, y: number];

/** A curve as a path, and its point after a part of the way. */
interface Curve {
  path: string;
  point: (part: number) => Point;
}

/** The Bézier curve of these points. */
function bezier(a: Point, b: Point, c: Point, d: Point): Curve {
  const point = (part: number): Point => {
    const rest = 1 - part;
    const along = (at: 0 | 1) => rest ** 3 * a[at] + 3 * rest ** 2 * part * b[at] + 3 * rest * part ** 2 * c[at] + part ** 3 * d[at];
    return [along(0), along(1)];
  };
  return { path: `M${a.join(" ")}C${b.join(" ")} ${c.join(" ")} ${d.join(" ")}`, point };
}

function curve(from: Place, to: Place): Curve {
  const forward = to.x > from.x;
  const [x1, y1] = [from.x + (forward ? WIDTH : 0), from.y + from.height / 2];
  const [x2, y2] = [to.x - (forward ? 2 : -WIDTH - 2), to.y + to.height / 2];
  // A long arrow rises late, beyond the boxes in between.
  const [own, other] = [0.75, 0.3].map((part) => Math.max(36, Math.abs(x2 - x1) * part) * (forward ? 1 : -1)) as [number, number];
  if (from.x === to.x) {
    const out = from.x + WIDTH;
    return bezier([out, y1], [out + 56, y1], [out + 56, y2], [out + 2, y2]);
  }
  return bezier([x1, y1], [x1 + own, y1], [x2 - other, y2], [x2, y2]);
}

/** The width of a line for calls in a second: one more for each power of ten from one call in an hour on. */
function width(weight: number): number {
  return Math.min(8, 1.6 + Math.max(0, Math.log10(weight * 3600)));
}

function ArrowShape({ arrow, curve, head }: { arrow: Arrow; curve: Curve; head: string }) {
  const { style } = arrow;
  const text = arrow.means ?? `${arrow.from} may call ${arrow.to}`;
  const kind = style?.kind ?? "plain";
  const [x, y] = curve.point(0.5);
  const thick = style?.kind === "used" ? width(style.weight) : undefined;
  const red = style?.kind === "used" && style.bad > 0 ? Math.max(VISIBLE, Math.min(1, style.bad)) : 0;
  return (
    <g class="line">
      <title>{arrow.text ? `${text}: ${arrow.text}` : text}</title>
      <path class={`arrow ${kind}`} d={curve.path} stroke-width={thick} marker-end={`url(#${head}${red > 0 ? "failed" : kind})`} />
      {red > 0 && <path class="arrow failed" d={curve.path} stroke-width={thick} pathLength={1} stroke-dasharray={`${red} 2`} stroke-dashoffset={red - 1} />}
      {style?.kind === "denied" && <path class="arrow denied cross" d={`M${x - CROSS} ${y - CROSS} ${x + CROSS} ${y + CROSS}M${x + CROSS} ${y - CROSS} ${x - CROSS} ${y + CROSS}`} />}
    </g>
  );
}

function BoxShape({ box, place, choose }: { box: Box; place: Place; choose?: (() => void) | undefined }) {
  const shape = (
    <>
      <rect x={place.x} y={place.y} width={WIDTH} height={place.height} rx="6" />
      <rect class="edge" x={place.x} y={place.y} width="5" height={place.height} rx="2" />
      {box.lines.map((line, index) => (
        <text key={index} x={place.x + 15} y={place.y + 21 + index * LINE} class={index === 0 ? "first" : ""}>
          {line.length > 29 ? `${line.slice(0, 28)}…` : line}
        </text>
      ))}
      <title>{box.lines.join("\n")}</title>
    </>
  );
  return box.href ? (
    <a href={box.href} class={`box ${box.tone}`} aria-label={box.lines.join(", ")} onMouseEnter={choose} onFocus={choose}>
      {shape}
    </a>
  ) : (
    <g class={`box ${box.tone}`} role="img" aria-label={box.lines.join(", ")} onMouseEnter={choose}>
      {shape}
    </g>
  );
}
