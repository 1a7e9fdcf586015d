import type { JSX, TargetedKeyboardEvent } from 'preact';
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { align, type Columns, type Curve, valueAt } from './curveData';
import { formatNumber, formatWhole, printable } from './format';
import { LineSample } from './lineSample';
import { isModified, keepPlainKeys } from './plainKeys';
import { type Marker, plotOptions } from './plot';
import { texts } from './texts';
import { useThemeName } from './theme';

const NO_REFERENCES: Readonly<Record<string, number>> = {};
const NO_MARKERS: readonly Marker[] = [];
const MOVES: Readonly<Record<string, number>> = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
const ZOOMS: Readonly<Record<string, number>> = { '+': 0.5, '-': 2 };

export interface CurvesProps {
  curves: readonly Curve[];
  /** For a screen reader, and above the chart. */
  title: string;
  xLabel?: string;
  yLabel?: string;
  height?: number;
  /** Weight of the exponential moving average, from 0 (none) to 1. */
  smoothing?: number;
  references?: Readonly<Record<string, number>>;
  markers?: readonly Marker[];
  /** Names of curves that are not drawn; without `onHide` the chart remembers them itself. */
  hidden?: readonly string[];
  onHide?: (names: string[]) => void;
}

/**
 * Lines over a shared x axis: drag to zoom, double click to zoom out, hover or arrow keys to read values; `+` and `-`
 * zoom around what is read, Escape ends both.
 */
export function Curves(props: CurvesProps): JSX.Element {
  const { curves, title, xLabel = 'frames', yLabel = '', height = 240, smoothing = 0 } = props;
  const { references = NO_REFERENCES, markers = NO_MARKERS } = props;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const isZoomed = useRef(false);
  const shownMarkers = useRef(markers);
  shownMarkers.current = markers;
  const [ownHidden, setOwnHidden] = useState<readonly string[]>([]);
  const hidden = props.hidden ?? ownHidden;
  const [cursor, setCursor] = useState<number | null>(null);
  const theme = useThemeName();
  const { data, columns } = useMemo(() => align(curves, smoothing), [curves, smoothing]);
  const isPoint = (curve: Curve): string => (curve.x.length === 1 ? 'point' : 'line');
  const shape = JSON.stringify([
    curves.map((curve, index) => [curve.name, isPoint(curve), Boolean(columns[index]?.high)]),
    references
  ]);

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) {
      return undefined;
    }
    const parts = { curves, columns, references, markers: () => shownMarkers.current, xLabel, yLabel, height };
    const onZoom = (zoomed: boolean): void => {
      isZoomed.current = zoomed;
    };
    const made = new uPlot(plotOptions(element, parts, { onCursor: setCursor, onZoom }), data, element);
    plot.current = made;
    onZoom(false);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth || 300, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, theme, height, xLabel, yLabel]);

  useEffect(() => {
    curves.forEach((curve, index) => {
      const { line, high, low } = columns[index] ?? { line: 0, high: null, low: null };
      const show = !hidden.includes(curve.name);
      [line, high, low].forEach(column => column && plot.current?.setSeries(column, { show }));
    });
  }, [hidden.join('\n'), shape, theme, height, xLabel, yLabel]);

  useEffect(() => {
    const isRead = box.current !== null && box.current === document.activeElement;
    const read = isRead && plot.current ? plot.current.data[0][plot.current.cursor.idx ?? -1] : undefined;
    plot.current?.setData(data, !isZoomed.current);
    if (isZoomed.current) {
      plot.current?.redraw();
    }
    if (read !== undefined) {
      readAfterScaling(() => plot.current, read);
    }
  }, [data]);

  useEffect(() => plot.current?.redraw(false, true), [markers]);

  useEffect(() => (box.current ? keepPlainKeys(box.current) : undefined), []);

  const toggle = (name: string): void => {
    const next = hidden.includes(name) ? hidden.filter(each => each !== name) : [...hidden, name];
    (props.onHide ?? setOwnHidden)(next);
  };
  const index = cursor === null ? data[0].length - 1 : Math.min(cursor, data[0].length - 1);
  const values = (curve: Curve, k: number): string => valueText(data, columns[k], index, curve);
  const visible = curves.map((curve, k) => ({ curve, k })).filter(({ curve }) => !hidden.includes(curve.name));
  const reading = visible.map(({ curve, k }) => `${printable(curve.name)} ${values(curve, k)}`).join('; ');
  const x = data[0][index];
  const position = x === undefined || cursor === null ? '' : `${formatWhole(x)} ${xLabel}`;
  return (
    <figure class="marlnb-curves" aria-label={title}>
      {title && <figcaption>{title}</figcaption>}
      <div
        class="marlnb-plot"
        ref={box}
        tabIndex={0}
        role="img"
        aria-label={`${title}: ${reading || texts.noPoints}${markerText(markers)}. ${texts.keys}`}
        onKeyDown={event => onKey(event, plot.current, isZoomed)}
      >
        {data[0].length === 0 && <span class="marlnb-empty">{texts.noPoints}</span>}
      </div>
      <div class="marlnb-legend" role="group" aria-label={texts.curves}>
        {curves.map((curve, k) => {
          const isOn = !hidden.includes(curve.name);
          return (
            <button
              key={curve.name}
              type="button"
              title={`${isOn ? texts.hide : texts.show} ${printable(curve.name)}`}
              aria-pressed={isOn}
              onClick={() => toggle(curve.name)}
            >
              <LineSample index={k} />
              {printable(curve.name)} <b>{values(curve, k)}</b>
            </button>
          );
        })}
        <span class="marlnb-cursor" aria-hidden="true">
          {position && `${texts.at} ${position}`}
        </span>
        <span class="marlnb-reading" role="status">
          {position && `${position}: ${reading}`}
        </span>
      </div>
    </figure>
  );
}

/** The value of a curve at an index, and its interval. */
function valueText(data: uPlot.AlignedData, columns: Columns | undefined, index: number, curve: Curve): string {
  const value = valueAt(data[columns?.line ?? 0], index);
  if (value === null || curve.x.length === 0) {
    return '';
  }
  const [low, high] = [columns?.low, columns?.high].map(column => (column ? valueAt(data[column], index) : null));
  const isKnown = typeof low === 'number' && typeof high === 'number';
  return isKnown ? `${formatNumber(value)} (${formatNumber(low)} ${texts.to} ${formatNumber(high)})` : formatNumber(value);
}

function markerText(markers: readonly Marker[]): string {
  const strong = markers.filter(({ isStrong }) => isStrong).map(({ x, label }) => `, ${label} ${texts.at} ${formatWhole(x)}`);
  return markers.length > 0 ? `; ${markers.length} ${texts.marked}${strong.join('')}` : '';
}

function onKey(
  event: TargetedKeyboardEvent<HTMLElement>,
  plot: uPlot | null,
  isZoomed: { current: boolean }
): void {
  const [move, zoom] = [MOVES[event.key], ZOOMS[event.key]];
  const last = (plot?.data[0].length ?? 0) - 1;
  if (!plot || last < 0 || isModified(event) || (move === undefined && zoom === undefined && event.key !== 'Escape')) {
    return;
  }
  event.preventDefault();
  event.stopPropagation();
  const index = plot.cursor.idx ?? last;
  const [first, end] = [plot.data[0][0] ?? 0, plot.data[0][last] ?? 0];
  if (move !== undefined) {
    const next = Math.max(0, Math.min(last, index + move));
    readAt(plot, plot.data[0][next] ?? 0);
  } else if (zoom !== undefined) {
    const { min, max } = plot.scales['x'] ?? {};
    const half = (((max ?? end) - (min ?? first)) * zoom) / 2;
    const middle = plot.data[0][index] ?? end;
    const range = { min: Math.max(first, middle - half), max: Math.min(end, middle + half) };
    isZoomed.current = range.min > first || range.max < end;
    plot.setScale('x', range);
    readAfterScaling(() => plot, middle);
  } else {
    isZoomed.current = false;
    plot.setScale('x', { min: first, max: end });
    plot.setCursor({ left: -10, top: -10 });
  }
}

function readAt(plot: uPlot, x: number): void {
  plot.setCursor({ left: plot.valToPos(x, 'x'), top: 10 });
}

/** Reads the same point again: uPlot applies a new scale in a microtask. */
function readAfterScaling(plot: () => uPlot | null, x: number): void {
  queueMicrotask(() => {
    const made = plot();
    if (made) {
      readAt(made, x);
    }
  });
}
