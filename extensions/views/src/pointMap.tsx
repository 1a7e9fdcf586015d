import type { JSX, TargetedKeyboardEvent } from 'preact';
import { formatNumber, printable } from './format';

const MARGIN = 26;
const LABEL_PX = 60;
const LINE_PX = 13;
const LABELLED = 12; // with more points, only those that are chosen have their names next to them
/** Viridis at equal steps, which grows in lightness and is read by the colour-blind. */
const SCALE = ['#440154', '#3b528b', '#21918c', '#5ec962', '#fde725'];
const UNKNOWN = '#8C8C8C';

export interface MapPoint {
  name: string;
  x: number;
  y: number;
  /** Shown as colour; null: unknown. */
  value: number | null;
}

/** Positions in a box of this size, with one scale for both axes; the box is at least `minSpan` wide. */
export function fitted(points: readonly MapPoint[], width: number, height: number, minSpan = 0): [number, number][] {
  const centre = (values: number[]): [number, number] => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    return [(low + high) / 2, high - low];
  };
  const [[x0, spanX], [y0, spanY]] = [centre(points.map(({ x }) => x)), centre(points.map(({ y }) => y))];
  const scale = Math.min((width - 2 * MARGIN) / Math.max(spanX, minSpan), (height - 2 * MARGIN) / spanY);
  const bounded = Number.isFinite(scale) ? scale : 0;
  return points.map(({ x, y }) => [width / 2 + (x - x0) * bounded, height / 2 - (y - y0) * bounded]);
}

/** By how many lines each label is moved down, so that those of points near each other are read apart. */
export function labelLines(positions: readonly [number, number][]): number[] {
  return positions.map(
    ([x, y], index) =>
      positions.slice(0, index).filter(([u, v]) => Math.abs(u - x) < LABEL_PX && Math.abs(v - y) < LINE_PX).length
  );
}

/** The colour of a value between the lowest and the highest. */
export function scaleColour(value: number | null, low: number, high: number): string {
  if (value === null || !Number.isFinite(value)) {
    return UNKNOWN;
  }
  const position = high > low ? ((value - low) / (high - low)) * (SCALE.length - 1) : (SCALE.length - 1) / 2;
  const [index, share] = [Math.min(SCALE.length - 2, Math.floor(position)), position % 1];
  const channel = (hex: string, k: number): number => parseInt(hex.slice(1 + 2 * k, 3 + 2 * k), 16);
  const [from, to] = [SCALE[index] ?? UNKNOWN, SCALE[index + 1] ?? UNKNOWN];
  const part = position >= SCALE.length - 1 ? 1 : share;
  return `rgb(${[0, 1, 2].map(k => Math.round(channel(from, k) * (1 - part) + channel(to, k) * part)).join(', ')})`;
}

/** Points whose distances mean something, coloured by a value; a click or Enter chooses one. */
export function PointMap(props: {
  points: readonly MapPoint[];
  /** For a screen reader, and above the map. */
  title: string;
  /** What the colour shows. */
  valueLabel: string;
  /** Indices; two of them are joined by a line. */
  chosen: readonly number[];
  onChoose: (index: number) => void;
  /** So that points which are nearly the same lie near each other, also where no others are. */
  minSpan?: number;
  width?: number;
  height?: number;
}): JSX.Element {
  const { points, title, valueLabel, chosen, onChoose, width = 560, height = 320 } = props;
  const positions = fitted(points, width, height, props.minSpan);
  const lines = labelLines(positions);
  const values = points.map(({ value }) => value).filter((value): value is number => value !== null);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const [from, to] = chosen.map(index => positions[index]);
  const onKeyDown = (event: TargetedKeyboardEvent<SVGElement>, index: number): void => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      onChoose(index);
    }
  };
  return (
    <figure class="marlnb-point-map" aria-label={title}>
      <figcaption>{title}</figcaption>
      <svg viewBox={`0 0 ${width} ${height}`} role="group" aria-label={title} style={{ maxWidth: `${width}px` }}>
        {from && to && <line x1={from[0]} y1={from[1]} x2={to[0]} y2={to[1]} />}
        {points.map(({ name, value }, index) => {
          const [x, y] = positions[index] ?? [0, 0];
          const isChosen = chosen.includes(index);
          const text = `${printable(name)}${value === null ? '' : `, ${valueLabel} ${formatNumber(value)}`}`;
          const toTheLeft = x > 0.7 * width;
          return (
            <g
              key={name}
              role="button"
              tabIndex={0}
              aria-pressed={isChosen}
              aria-label={text}
              onClick={() => onChoose(index)}
              onKeyDown={event => onKeyDown(event, index)}
            >
              <title>{text}</title>
              <circle cx={x} cy={y} r={isChosen ? 9 : 7} fill={scaleColour(value, low, high)} />
              {(points.length <= LABELLED || isChosen) && (
                <text x={toTheLeft ? x - 12 : x + 12} y={y - 6 + LINE_PX * (lines[index] ?? 0)} text-anchor={toTheLeft ? 'end' : 'start'}>
                  {printable(name)}
                </text>
              )}
            </g>
          );
        })}
      </svg>
      {values.length > 0 && (
        <div class="marlnb-colour-scale">
          {valueLabel} {formatNumber(low)}
          {low < high && (
            <>
              <span aria-hidden="true" style={{ background: `linear-gradient(to right, ${SCALE.join(', ')})` }} />
              {formatNumber(high)}
            </>
          )}
        </div>
      )}
    </figure>
  );
}
