import type { JSX } from 'preact';

const MARGIN = 1.5;

/** The points of a line that fills a box; the box is in user units, y downward. */
export function sparklinePoints(values: readonly number[], width: number, height: number): string {
  const known = values.filter(Number.isFinite);
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const span = high - low;
  const step = known.length > 1 ? (width - 2 * MARGIN) / (known.length - 1) : 0;
  return known
    .map((value, index) => {
      const share = span > 0 ? (value - low) / span : 0.5;
      return `${round(MARGIN + index * step)},${round(height - MARGIN - share * (height - 2 * MARGIN))}`;
    })
    .join(' ');
}

function round(value: number): number {
  return Math.round(value * 100) / 100;
}

/** A small curve without axes; `label` describes it to a screen reader. */
export function Sparkline(props: {
  values: readonly number[];
  label: string;
  width?: number;
  height?: number;
}): JSX.Element {
  const { width = 64, height = 18 } = props;
  return (
    <svg class="marlnb-sparkline" role="img" aria-label={props.label} width={width} height={height}>
      <title>{props.label}</title>
      {props.values.length > 1 && <polyline points={sparklinePoints(props.values, width, height)} />}
    </svg>
  );
}
