// Formats of numbers and times.

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function bytes(number: number): string {
  if (number < 1000) return `${number} B`;
  if (number < 1_000_000) return `${(number / 1000).toFixed(1)} kB`;
  return `${(number / 1_000_000).toFixed(1)} MB`;
}

/** An average rate of calls, in the unit in which it is at least one. */
export function perSecond(number: number): string {
  const [rate, unit] = number >= 1 ? [number, "s"] : number * 60 >= 1 ? [number * 60, "min"] : number * 3600 >= 1 ? [number * 3600, "h"] : [number * 86_400, "day"];
  return `${rate.toLocaleString("en", { maximumSignificantDigits: rate >= 100 ? 3 : 2 })}/${unit}`;
}

/** A part of a number in percent. */
export function share(part: number, whole: number): string {
  if (part === 0) return "0 %";
  const percent = (100 * part) / whole;
  return percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

export function milliseconds(number: number): string {
  if (number < 10) return `${number.toFixed(1)} ms`;
  if (number < 1000) return `${Math.round(number)} ms`;
  if (number < 60_000) return `${(number / 1000).toFixed(1)} s`;
  return `${Math.round(number / 60_000)} min`;
}

export function ago(moment: string, now = Date.now()): string {
  const seconds = Math.max(0, Math.round((now - Date.parse(moment)) / 1000));
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.round(seconds / 3600)} h ago`;
  return `${Math.round(seconds / 86_400)} days ago`;
}

/** How long until a moment, or since. */
export function until(moment: string, now = Date.now()): string {
  const days = (Date.parse(moment) - now) / 86_400_000;
  if (days < 0) return `expired ${ago(moment, now)}`;
  if (days < 1) return `expires in ${Math.max(1, Math.round(days * 24))} h`;
  return `expires in ${count(Math.round(days), "day")}`;
}

export function time(moment: string): string {
  return new Date(moment).toLocaleTimeString("en-GB", { hour12: false });
}

export function day(moment: string): string {
  return moment.slice(0, 10);
}
