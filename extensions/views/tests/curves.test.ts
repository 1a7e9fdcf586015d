import { describe, expect, it } from 'vitest';
import { align, valueAt } from '../src/curveData';
import { formatCountTicks, formatTicks } from '../src/format';
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
  it('have axes whose labels are right and all different', () => {
    expect(formatTicks([11_620, 11_640, 11_660], 20)).toEqual(['11620', '11640', '11660']);
    expect(formatTicks([-0.5, 0, 0.25], 0.25)).toEqual(['-0.50', '0', '0.25']);
    expect(formatTicks([0, 2.5e-7, 5e-7], 2.5e-7)).toEqual(['0', '2.5e-7', '5.0e-7']);
    expect(formatTicks([1e8, 1.5e8], 5e7)).toEqual(['1.0e8', '1.5e8']);
    expect(formatTicks([], 1)).toEqual([]);
    expect(formatCountTicks([0, 500_000, 1_000_000], 500_000)).toEqual(['0', '0.5M', '1.0M']);
    expect(formatCountTicks([1_000_100, 1_000_200], 100)).toEqual(['1.0001M', '1.0002M']);
    expect(formatCountTicks([0, 0.5, 1], 0.5)).toEqual(['0', '', '1']);
  });
  it('differ by more than their colour where colours repeat', () => {
    expect(dash(6)).toEqual([]);
    expect(dash(7)).toEqual([8, 3]);
  });
  it('fill their interval faintly', () => {
    expect(faint('#0072B2', 0.18)).toBe('rgba(0, 114, 178, 0.18)');
  });
});
