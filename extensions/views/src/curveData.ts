import uPlot from 'uplot';
import { smooth } from './smoothing';

/** A line with ascending x; `low` and `high` are the ends of its interval. */
export interface Curve {
  name: string;
  x: readonly number[];
  y: readonly number[];
  low?: readonly number[] | null;
  high?: readonly number[] | null;
}

/** Of a curve, the columns of its line and of the ends of its interval. */
export interface Columns {
  line: number;
  high: number | null;
  low: number | null;
}

/** Curves as columns over the union of their x. */
export function align(curves: readonly Curve[], smoothing: number): { data: uPlot.AlignedData; columns: Columns[] } {
  const tables: uPlot.AlignedData[] = [];
  const columns: Columns[] = [];
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
