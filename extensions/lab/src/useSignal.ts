import type { ISignal } from '@lumino/signaling';
import { useEffect, useReducer } from 'preact/hooks';

/** Draws a component again whenever a signal is emitted. */
export function useSignal<Sender, Value>(signal: ISignal<Sender, Value>): void {
  const [, draw] = useReducer((count: number, _: null) => count + 1, 0);
  useEffect(() => {
    const slot = (): void => draw(null);
    signal.connect(slot);
    return () => {
      signal.disconnect(slot);
    };
  }, [signal]);
}
