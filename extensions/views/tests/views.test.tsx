import { render } from 'preact';
import { describe, expect, it } from 'vitest';
import { formatAge, formatBytes, formatClock, formatCount, formatNumber, formatWhole, printable } from '../src/format';
import { LineSample } from '../src/lineSample';
import { Sparkline, sparklinePoints } from '../src/sparkline';
import { rowOffsets, visibleRange } from '../src/virtualList';

describe('numbers', () => {
  it('are written as marlnb.display.formatting writes them', () => {
    expect([999, 12_345, 999_499, 1_250_000].map(formatCount)).toEqual(['999', '12.3k', '999.5k', '1.25M']);
    expect([999, 12_345].map(formatWhole)).toEqual(['999', '12,345']);
    expect([512, 3140, 29_700_000_000].map(formatBytes)).toEqual(['512 B', '3.14 kB', '29.7 GB']);
    expect([42, 725, 11_220].map(formatClock)).toEqual(['0:42', '12:05', '3:07:00']);
    expect([-7.14729, 15.390625, 11734, 1234567].map(formatNumber)).toEqual(['-7.147', '15.39', '11734', '1.235e+6']);
    expect([0, 0.0001, 0.0000123456].map(formatNumber)).toEqual(['0', '0.0001', '1.235e-5']);
    expect([5, 119, 7200, 200_000].map(formatAge)).toEqual(['5 s', '1 min', '2 h', '2 d']);
  });
});

describe('text from outside', () => {
  it('hides and turns nothing', () => {
    expect(printable('a\u202Etxt.exe')).toBe('a\uFFFDtxt.exe');
    expect(printable('two\nlines \u001b[31m \udcff')).toBe('two\uFFFDlines \uFFFD[31m \uFFFD');
    expect(printable('lr=3e-4, größe, 種, 🐜')).toBe('lr=3e-4, größe, 種, 🐜');
  });
});

describe('a sparkline', () => {
  it('goes from the left to the right and from its lowest to its highest value', () => {
    expect(sparklinePoints([0, 1, 0.5], 23, 13)).toBe('1.5,11.5 11.5,1.5 21.5,6.5');
  });
  it('is level where all values are the same, and skips what is no number', () => {
    expect(sparklinePoints([3, NaN, 3], 23, 13)).toBe('1.5,6.5 21.5,6.5');
  });
  it('shows names as text', () => {
    const box = document.createElement('div');
    render(<Sparkline values={[1, 2]} label="<img src=x onerror=alert(1)>" />, box);
    expect(box.querySelector('img')).toBeNull();
    expect(box.querySelector('title')?.textContent).toBe('<img src=x onerror=alert(1)>');
  });
});

describe('the samples of lines in a legend', () => {
  it('differ where colours repeat', () => {
    const drawn = [0, 7, 14].map(index => {
      const box = document.createElement('div');
      render(<LineSample index={index} />, box);
      return box.innerHTML;
    });
    expect(new Set(drawn).size).toBe(3);
  });
});

describe('a virtual list', () => {
  const rows = Array.from({ length: 1000 }, (_, index) => (index % 10 === 0 ? 28 : 46));
  const offsets = rowOffsets(rows, row => row);
  it('is as high as its rows', () => {
    expect(offsets.length).toBe(1001);
    expect(offsets[1000]).toBe(100 * 28 + 900 * 46);
  });
  it('draws what is in view, and little more', () => {
    const [first, end] = visibleRange(offsets, 20_000, 500);
    expect(offsets[first]).toBeLessThanOrEqual(20_000);
    expect(offsets[end]).toBeGreaterThanOrEqual(20_500);
    expect(end - first).toBeLessThan(30);
  });
  it('draws all of a short list, and none of an empty one', () => {
    expect(visibleRange(rowOffsets([46, 46], row => row), 0, 500)).toEqual([0, 2]);
    expect(visibleRange([0], 0, 500)).toEqual([0, 0]);
  });
});
