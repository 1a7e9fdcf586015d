import { describe, expect, it } from 'vitest';
import { align, valueAt } from '../src/curveData';
import { yRange } from '../src/plot';
import { smooth } from '../src/smoothing';
import { dash, faint } from '../src/theme';

describe('smoothing', () => {
  it('is the weighted mean of all values so far', () => {
    // by hand: 4; (0.5 * 4 + 1) / 1.5; (0.25 * 4 + 0.5 * 1 + 7) / 1.75
    expect(smooth([4, 1, 7], 0.5)).toEqual([4, 2, 8.5 / 1.75]);
    expect(smooth([4, 1, 7], 0)).toEqual([4, 1, 7]);
  });
});

describe('curves', () => {
  it('share the union of their x', () => {
    const curves = [
      { name: 'a', x: [1, 3], y: [10, 30] },
      { name: 'b', x: [2, 3], y: [2, 3], low: [1, 2], high: [3, 4] }
    ];
    const { data, columns } = align(curves, 0);
    expect([...data[0]]).toEqual([1, 2, 3]);
    expect(columns).toEqual([
      { line: 1, high: null, low: null },
      { line: 2, high: 3, low: 4 }
    ]);
    expect(data[2]?.[2]).toBe(3);
    expect([data[3]?.[1], data[4]?.[1]]).toEqual([3, 1]);
    expect(valueAt(data[1], 1)).toBe(10);
    expect(valueAt(data[2], 0)).toBeNull();
  });
  it('may be none', () => {
    expect(align([], 0).data).toEqual([[]]);
  });
  it('keep a line for references in view, and room around them', () => {
    expect(yRange([0, 10, null, 20])).toEqual([-1.2, 21.2]);
    expect(yRange([null, undefined])).toEqual([0, 1]);
    expect(yRange([-5, -5])).toEqual([-5.3, -4.7]);
  });
  it('differ by more than their colour where colours repeat', () => {
    expect(dash(6)).toEqual([]);
    expect(dash(7)).toEqual([8, 3]);
  });
  it('fill their interval faintly', () => {
    expect(faint('#0072B2', 0.18)).toBe('rgba(0, 114, 178, 0.18)');
  });
});
