import type { Curve } from '../curveData';

/** Of a line: x, y, and where it has an interval, its low and high ends. */
export type Points = [number[], number[], number[]?, number[]?];

/** New points by line, and how many points each of these lines had before. */
export interface Addition {
  add: Record<string, Points>;
  after: Record<string, number>;
}

/** The lines of marlnb.widgets.core.curves.LiveCurves, as far as they have reached this page. */
export class LinePoints {
  lines: Record<string, Points> = {};

  /** Replaces everything by copies: the given arrays stay as they are. */
  reset(lines: Record<string, Points>): void {
    this.lines = structuredClone(lines);
  }

  /** Returns whether points between the known ones and these are missing. */
  add({ add, after }: Addition): boolean {
    let isMissing = false;
    for (const [name, [xs, ys]] of Object.entries(add)) {
      const known = this.lines[name];
      const duplicates = (known?.[0].length ?? 0) - (after[name] ?? 0); // points that a full state has already brought
      if (duplicates < 0) {
        isMissing = true;
      } else if (known) {
        known[0].push(...xs.slice(duplicates));
        known[1].push(...ys.slice(duplicates));
      }
    }
    return isMissing;
  }

  /** The number of points of the longest line. */
  get count(): number {
    return Math.max(0, ...Object.values(this.lines).map(([x]) => x.length));
  }

  curves(): Curve[] {
    return Object.entries(this.lines).map(([name, [x, y, low, high]]) => ({
      name,
      x,
      y,
      low: low ?? null,
      high: high ?? null
    }));
  }
}
