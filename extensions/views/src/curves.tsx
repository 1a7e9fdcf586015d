import type { JSX, TargetedKeyboardEvent } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { formatCount, formatNumber } from './format';
import { smooth } from './smoothing';
import { colour, faint, themeColour, useThemeName } from './theme';

/** A line with ascending x; `low` and `high` are the ends of its interval. */
export interface Curve {
  name: string;
  x: readonly number[];
  y: readonly number[];
  low?: readonly number[] | null;
  high?: readonly number[] | null;
}

interface Aligned {
  data: uPlot.AlignedData;
  /** By curve, the columns of its line and of the ends of its interval. */
  columns: { line: number; high: number | null; low: number | null }[];
}

/** Curves as columns over the union of their x. */
export function align(curves: readonly Curve[], smoothing: number): Aligned {
  const tables: uPlot.AlignedData[] = [];
  const columns: Aligned['columns'] = [];
  let column = 1;
  for (const { x, y, low, high } of curves) {
    const ys = [smooth(y, smoothing)];
    const hasInterval = Boolean(low && high);
    if (low && high) {
      ys.push(smooth(high, smoothing), smooth(low, smoothing));
    }
    tables.push([[...x], ...ys]);
    columns.push({ line: column, high: hasInterval ? column + 1 : null, low: hasInterval ? column + 2 : null });
    column += ys.length;
  }
  return { data: tables.length > 0 ? uPlot.join(tables) : [[]], columns };
}

/** The last known value of a column at or before an index. */
export function valueAt(column: ArrayLike<number | null | undefined> | undefined, index: number): number | null {
  for (let k = index; column && k >= 0; k -= 1) {
    const value = column[k];
    if (value !== null && value !== undefined) {
      return value;
    }
  }
  return null;
}

/** Lines over a shared x axis: drag to zoom, double click to zoom out, hover or arrow keys to read values. */
export function Curves(props: {
  curves: readonly Curve[];
  /** For a screen reader, and above the chart. */
  title: string;
  xLabel?: string;
  height?: number;
  /** Weight of the exponential moving average, from 0 (none) to 1. */
  smoothing?: number;
}): JSX.Element {
  const { curves, title, xLabel = 'frames', height = 240, smoothing = 0 } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set());
  const [cursor, setCursor] = useState<number | null>(null);
  const theme = useThemeName();
  const { data, columns } = useMemo(() => align(curves, smoothing), [curves, smoothing]);
  const shape = curves.map((curve, index) => `${curve.name}\n${columns[index]?.high ? 'interval' : ''}`).join('\n');

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) {
      return undefined;
    }
    const made = new uPlot(options(element, curves, columns, height, xLabel, setCursor), data, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth || 300, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, theme, height, xLabel]);

  useEffect(() => {
    const made = plot.current;
    if (made) {
      const { min, max } = made.scales['x'] ?? {};
      const [first, last] = [made.data[0][0], made.data[0][made.data[0].length - 1]];
      const isZoomed = min !== undefined && max !== undefined && (min !== first || max !== last);
      made.setData(data, !isZoomed);
    }
  }, [data]);

  useEffect(() => {
    curves.forEach((curve, index) => {
      const { line, high, low } = columns[index] ?? { line: 0, high: null, low: null };
      [line, high, low].forEach(column => column && plot.current?.setSeries(column, { show: !hidden.has(curve.name) }));
    });
  }, [hidden, shape, theme]);

  const toggle = (name: string): void => {
    const next = new Set(hidden);
    if (!next.delete(name)) {
      next.add(name);
    }
    setHidden(next);
  };
  const last = data[0].length - 1;
  const index = cursor ?? last;
  const x = data[0][index];
  return (
    <figure class="marlnb-curves" aria-label={title}>
      <figcaption>{title}</figcaption>
      <div
        class="marlnb-plot"
        ref={box}
        tabIndex={0}
        role="img"
        aria-label={`${title}: ${curves.map(curve => curve.name).join(', ')}. Arrow keys read values.`}
        onKeyDown={event => moveCursor(event, plot.current, index)}
      />
      <div class="marlnb-legend" role="group" aria-label="curves">
        {curves.map((curve, k) => {
          const value = valueAt(data[columns[k]?.line ?? 0], index);
          return (
            <button key={curve.name} aria-pressed={!hidden.has(curve.name)} onClick={() => toggle(curve.name)}>
              <span class="marlnb-swatch" style={{ background: colour(k) }} aria-hidden="true" />
              {curve.name} <b>{value === null ? '' : formatNumber(value)}</b>
            </button>
          );
        })}
        <span class="marlnb-cursor" role="status">
          {x === undefined || cursor === null ? '' : `at ${formatCount(x)} ${xLabel}`}
        </span>
      </div>
    </figure>
  );
}

function moveCursor(event: TargetedKeyboardEvent<HTMLElement>, plot: uPlot | null, index: number): void {
  const moves: Record<string, number> = { ArrowLeft: -1, ArrowRight: 1, Home: -1e9, End: 1e9 };
  const move = moves[event.key];
  if (!plot || move === undefined) {
    return;
  }
  event.preventDefault();
  const next = Math.max(0, Math.min(plot.data[0].length - 1, index + move));
  plot.setCursor({ left: plot.valToPos(plot.data[0][next] ?? 0, 'x'), top: 10 });
}

function options(
  element: Element,
  curves: readonly Curve[],
  columns: Aligned['columns'],
  height: number,
  xLabel: string,
  setCursor: (index: number | null) => void
): uPlot.Options {
  const text = themeColour(element, '--jp-ui-font-color1', '#222222');
  const grid = { stroke: themeColour(element, '--jp-border-color2', '#e0e0e0'), width: 1 };
  const font = `11px ${themeColour(element, '--jp-ui-font-family', 'sans-serif')}`;
  const axis = { stroke: text, grid, ticks: grid, font };
  const series: uPlot.Series[] = [{ label: xLabel }];
  const bands: uPlot.Band[] = [];
  curves.forEach((curve, index) => {
    const { high, low } = columns[index] ?? { high: null, low: null };
    const line = { spanGaps: true, points: { show: curve.x.length === 1 } };
    series.push({ ...line, label: curve.name, stroke: colour(index), width: 1.6 });
    if (high !== null && low !== null) {
      series.push({ ...line, stroke: 'transparent' }, { ...line, stroke: 'transparent' });
      bands.push({ series: [high, low], fill: faint(colour(index), 0.18) });
    }
  });
  return {
    width: element.clientWidth || 300,
    height,
    series,
    bands,
    legend: { show: false },
    scales: { x: { time: false } },
    axes: [
      { ...axis, values: (_, values) => values.map(formatCount), size: 30 },
      { ...axis, values: (_, values) => values.map(formatNumber), size: 56 }
    ],
    cursor: { y: false, points: { size: 6 } },
    hooks: { setCursor: [plot => setCursor(plot.cursor.idx ?? null)] }
  };
}
