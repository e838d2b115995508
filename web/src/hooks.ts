// Hooks that views share: periodic loading while the page is visible, and the place in the address.

import { useCallback, useEffect, useRef, useState } from "preact/hooks";
import { RequestError, ask } from "./api";

export interface Loaded<T> {
  value: T | undefined;
  error: RequestError | undefined;
  /** When the value was loaded. */
  at: Date | undefined;
  again: () => void;
}

/** The response of a page, requested again every `every` milliseconds while the page is visible; by POST if there is a body. */
export function useLoaded<T>(page: string | undefined, every = 0, body?: string): Loaded<T> {
  const [state, setState] = useState<{ page?: string | undefined; value?: T; error?: RequestError | undefined; at?: Date }>({});
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    if (page === undefined) return;
    const ending = new AbortController();
    let timer: number | undefined;
    const load = async () => {
      timer = undefined;
      if (!document.hidden) {
        try {
          const value = await ask<T>(page, { signal: ending.signal, ...(body === undefined ? {} : posted(body)) });
          setState({ page, value, at: new Date() });
        } catch (error) {
          if (ending.signal.aborted) return;
          const failure = error instanceof RequestError ? error : new RequestError(0, String(error));
          setState((before) => (before.page === page ? { ...before, error: failure } : { page, error: failure }));
        }
      }
      if (every > 0 && !ending.signal.aborted) timer = window.setTimeout(load, every);
    };
    const seen = () => {
      if (!document.hidden && timer !== undefined) {
        window.clearTimeout(timer);
        void load();
      }
    };
    document.addEventListener("visibilitychange", seen);
    void load();
    return () => {
      ending.abort();
      window.clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, [page, every, body, turn]);
  const again = useCallback(() => setTurn((turn) => turn + 1), []);
  // The previous rows stay until the new ones are loaded, so that the layout does not jump.
  return { value: state.value, error: state.error, at: state.at, again };
}

function posted(body: string): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json" }, body };
}

/** Parts of the address after `#/`, each decoded. */
export function usePlace(): string[] {
  const read = () => window.location.hash.replace(/^#\/?/, "").split("/").map(decoded);
  const [place, setPlace] = useState(read);
  useEffect(() => {
    const moved = () => setPlace(read());
    window.addEventListener("hashchange", moved);
    return () => window.removeEventListener("hashchange", moved);
  }, []);
  return place;
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The address of a place. */
export function at(...parts: string[]): string {
  return `#/${parts.map(encodeURIComponent).join("/")}`;
}

/** A debounced text, so that typing causes one request. */
export function useSettled(text: string, pause = 250): string {
  const [settled, setSettled] = useState(text);
  const first = useRef(true);
  useEffect(() => {
    if (first.current) {
      first.current = false;
      return;
    }
    const timer = window.setTimeout(() => setSettled(text), pause);
    return () => window.clearTimeout(timer);
  }, [text, pause]);
  return settled;
}
