import type { JSX } from 'preact';
import { colour, dash } from './theme';

/** A short piece of a chart's line, for its legend. */
export function LineSample({ index }: { index: number }): JSX.Element {
  return (
    <svg class="marlnb-line-sample" viewBox="0 0 24 10" aria-hidden="true">
      <line x1="0" y1="5" x2="24" y2="5" stroke={colour(index)} stroke-dasharray={dash(index).join(' ')} />
    </svg>
  );
}
