import { render } from 'preact';
import { describe, expect, it } from 'vitest';
import { fitted, labelLines, type MapPoint, PointMap, scaleColour } from '../src/pointMap';

const points: MapPoint[] = [
  { name: '<img src=x>', x: 0, y: 0, value: -10 },
  { name: 'b', x: 3, y: 4, value: -20 },
  { name: 'c', x: 1, y: 0, value: null }
];

describe('a map of points', () => {
  it('has one scale for both axes', () => {
    const [a, b, c] = fitted(points, 500, 300);
    const distance = (p?: number[], q?: number[]): number => Math.hypot((p?.[0] ?? 0) - (q?.[0] ?? 0), (p?.[1] ?? 0) - (q?.[1] ?? 0));
    expect(distance(a, b) / distance(a, c)).toBeCloseTo(5);
    expect(Math.max(a?.[1] ?? 0, b?.[1] ?? 0)).toBeLessThanOrEqual(300);
    expect(fitted(points.slice(0, 1), 500, 300)).toEqual([[250, 150]]);
    const [near, next] = fitted([{ ...points[0]!, x: 0 }, { ...points[0]!, x: 0.1 }], 552, 300, 0.5);
    expect(distance(near, next)).toBeCloseTo(100);
  });
  it('writes names of points near each other below each other', () => {
    expect(labelLines([[100, 100], [300, 100], [110, 95], [100, 101]])).toEqual([0, 0, 1, 2]);
  });
  it('colours values from the lowest to the highest', () => {
    expect(scaleColour(-20, -20, -10)).toBe('rgb(68, 1, 84)');
    expect(scaleColour(-10, -20, -10)).toBe('rgb(253, 231, 37)');
    expect(scaleColour(-15, -20, -10)).toBe('rgb(33, 145, 140)');
    expect(scaleColour(null, -20, -10)).toBe('#8C8C8C');
  });
  it('is chosen from by click or key, and shows names as text', () => {
    const [box, chosen] = [document.createElement('div'), [] as number[]];
    const shown = <PointMap points={points} title="map" valueLabel="return" chosen={[0, 2]} onChoose={index => chosen.push(index)} />;
    render(shown, box);
    const buttons = [...box.querySelectorAll('g[role=button]')];
    expect(buttons.map(each => each.getAttribute('aria-pressed'))).toEqual(['true', 'false', 'true']);
    expect(buttons[1]?.getAttribute('aria-label')).toBe('b, return -20');
    buttons[1]?.dispatchEvent(new MouseEvent('click', { bubbles: true }));
    buttons[2]?.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true }));
    expect(chosen).toEqual([1, 2]);
    expect(box.querySelector('img')).toBeNull();
    expect(box.querySelectorAll('line').length).toBe(1);
  });
});
