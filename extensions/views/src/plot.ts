import uPlot from 'uplot';
import type { Columns, Curve } from './curveData';
import { formatCountTicks, formatNumber, formatTicks } from './format';
import { colour, dash, faint, themeColour } from './theme';

/** A vertical line with a label at its top. */
export interface Marker {
  x: number;
  label: string;
  /** Drawn darker, and its label before those of others. */
  isStrong: boolean;
}

export interface PlotParts {
  curves: readonly Curve[];
  columns: readonly Columns[];
  /** Named levels, drawn as dashed lines. */
  references: Readonly<Record<string, number>>;
  /** Asked for at each drawing. */
  markers: () => readonly Marker[];
  xLabel: string;
  yLabel: string;
  height: number;
}

export interface PlotEvents {
  onCursor: (index: number | null) => void;
  onZoom: (isZoomed: boolean) => void;
}

const FONT_PX = 11;
const MIN_AXIS_PX = 54; // width of the y axis; legends and controls begin there
const TICK_PX = 16; // of a tick and the gaps beside its label
const MARKER_PX = 14; // height of the labels of markers
const REFERENCE_PX = 118; // width of the labels of references
const MIN_WIDTH_FOR_REFERENCES_PX = 420;

/** What uPlot draws in an element, in the colours of the theme. */
export function plotOptions(element: Element, parts: PlotParts, events: PlotEvents): uPlot.Options {
  const { curves, columns, references, markers, xLabel, yLabel, height } = parts;
  // asked for at each drawing: an element that is not in the page yet has no colours
  const text = (): string => themeColour(element, '--jp-ui-font-color1', '#222222');
  const muted = (): string => themeColour(element, '--jp-ui-font-color2', '#666666');
  const grid = { stroke: () => themeColour(element, '--jp-border-color2', '#e0e0e0'), width: 1 };
  const font = `${FONT_PX}px system-ui, sans-serif`;
  const axis = { stroke: text, grid, ticks: grid, font, labelFont: font, labelGap: 2, labelSize: 16 };
  const levels = Object.values(references);
  const hasRoom = (plot: uPlot): boolean => levels.length > 0 && plot.width >= MIN_WIDTH_FOR_REFERENCES_PX;
  return {
    width: element.clientWidth || 300,
    height,
    ...seriesOf(curves, columns, xLabel),
    legend: { show: false },
    padding: [() => (markers().length > 0 ? MARKER_PX + 4 : 8), plot => (hasRoom(plot) ? REFERENCE_PX : 20), 0, 0],
    scales: { x: { time: false }, y: { range: (_, low, high) => yRange([low, high, ...levels]) } },
    axes: [
      { ...axis, values: (_plot, values, _axis, _space, step) => formatCountTicks(values, step), size: 28, space: 60, label: xLabel },
      {
        ...axis,
        values: (_plot, values, _axis, _space, step) => formatTicks(values, step),
        size: (plot, labels: string[] | null) => axisWidth(plot, labels ?? [], font),
        ...(yLabel ? { label: yLabel } : {})
      }
    ],
    cursor: {
      y: false,
      points: { size: 6 },
      bind: {
        dblclick: (_plot, _target, zoomOut) => event => {
          events.onZoom(false);
          return zoomOut(event);
        }
      }
    },
    hooks: {
      setCursor: [plot => events.onCursor(plot.cursor.idx ?? null)],
      setSelect: [plot => plot.select.width > 0 && events.onZoom(true)],
      draw: [
        plot => drawReferences(plot, references, muted(), font, hasRoom(plot)),
        plot => drawMarkers(plot, markers(), text(), muted(), font)
      ]
    }
  };
}

function seriesOf(
  curves: readonly Curve[],
  columns: readonly Columns[],
  xLabel: string
): { series: uPlot.Series[]; bands: uPlot.Band[] } {
  const series: uPlot.Series[] = [{ label: xLabel }];
  const bands: uPlot.Band[] = [];
  curves.forEach((curve, index) => {
    const { high, low } = columns[index] ?? { high: null, low: null };
    const line = { spanGaps: true, points: { show: curve.x.length === 1 } };
    series.push({ ...line, label: curve.name, stroke: colour(index), width: 1.6, dash: dash(index) });
    if (high !== null && low !== null) {
      const end = { ...line, stroke: 'transparent', points: { show: false } };
      series.push({ ...end, label: `${curve.name}, high` }, { ...end, label: `${curve.name}, low` });
      bands.push({ series: [high, low], fill: faint(colour(index), 0.18) });
    }
  });
  return { series, bands };
}

/** The width of the y axis, whose labels are never cut. */
function axisWidth({ ctx }: uPlot, labels: readonly string[], font: string): number {
  ctx.save();
  ctx.font = font;
  const widest = Math.max(0, ...labels.map(label => ctx.measureText(label).width));
  ctx.restore();
  return Math.max(MIN_AXIS_PX, Math.ceil(widest) + TICK_PX);
}

/** The ends of an axis that holds all known values, with a little room. */
export function yRange(values: readonly (number | null | undefined)[]): uPlot.Range.MinMax {
  const known = values.filter((value): value is number => typeof value === 'number' && Number.isFinite(value));
  if (known.length === 0) {
    return [0, 1];
  }
  const [low, high] = [Math.min(...known), Math.max(...known)];
  const pad = 0.06 * (high - low || Math.abs(high) || 1);
  return [low - pad, high + pad];
}

/** Dashed levels; their labels are beyond the right end, and labels of levels that are close move apart. */
function drawReferences(
  plot: uPlot,
  references: Readonly<Record<string, number>>,
  muted: string,
  font: string,
  hasRoom: boolean
): void {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = muted;
  ctx.lineWidth = ratio;
  ctx.font = scaled(font, ratio);
  ctx.textAlign = 'left';
  ctx.textBaseline = 'middle';
  let above = Infinity;
  for (const [name, level] of Object.entries(references).sort((a, b) => a[1] - b[1])) {
    const y = plot.valToPos(level, 'y', true);
    ctx.setLineDash([5 * ratio, 4 * ratio]);
    line(ctx, bbox.left, y, bbox.left + bbox.width, y);
    if (hasRoom) {
      above = Math.min(y, above - (FONT_PX + 2) * ratio);
      ctx.fillText(`${name} ${formatNumber(level)}`, bbox.left + bbox.width + 5 * ratio, above, (REFERENCE_PX - 8) * ratio);
    }
  }
  ctx.restore();
}

/** Strong markers first; a label is left out where it has no room. */
function drawMarkers(plot: uPlot, markers: readonly Marker[], text: string, muted: string, font: string): void {
  const { ctx, bbox } = plot;
  const ratio = uPlot.pxRatio;
  const right = bbox.left + bbox.width;
  const occupied: [number, number][] = [];
  ctx.save();
  ctx.font = scaled(font, ratio);
  ctx.textAlign = 'center';
  ctx.textBaseline = 'bottom';
  for (const { x, label, isStrong } of [...markers].sort((a, b) => Number(b.isStrong) - Number(a.isStrong))) {
    const left = plot.valToPos(x, 'x', true);
    if (left < bbox.left - 1 || left > right + 1) {
      continue;
    }
    ctx.strokeStyle = ctx.fillStyle = isStrong ? text : muted;
    ctx.lineWidth = (isStrong ? 1.5 : 1) * ratio;
    ctx.globalAlpha = isStrong ? 1 : 0.45;
    ctx.setLineDash(isStrong ? [] : [ratio, 3 * ratio]);
    line(ctx, left, bbox.top, left, bbox.top + bbox.height);
    ctx.globalAlpha = 1;
    const half = ctx.measureText(label).width / 2 + 3 * ratio;
    const middle = Math.min(Math.max(bbox.left + half, left), right + 12 * ratio - half);
    if (!occupied.some(([low, high]) => middle + half > low && middle - half < high)) {
      occupied.push([middle - half, middle + half]);
      ctx.fillText(label, middle, bbox.top - 2 * ratio);
    }
  }
  ctx.restore();
}

function line(ctx: CanvasRenderingContext2D, x0: number, y0: number, x1: number, y1: number): void {
  ctx.beginPath();
  ctx.moveTo(x0, y0);
  ctx.lineTo(x1, y1);
  ctx.stroke();
}

/** A font of this size in canvas pixels. */
function scaled(font: string, ratio: number): string {
  return font.replace(/^[\d.]+px/, `${FONT_PX * ratio}px`);
}
