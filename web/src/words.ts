// Formats of numbers and times.

export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

export function bytes(number: number): string {
  if (number < 1000) return `${number} B`;
  if (number < 1_000_000) return `${(number / 1000).toFixed(1)} kB`;
  return `${(number / 1_000_000).toFixed(1)} MB`;
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
