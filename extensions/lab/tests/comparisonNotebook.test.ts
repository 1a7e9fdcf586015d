import { describe, expect, it } from 'vitest';
import { attachCell, comparisonCells } from '../src/comparisonNotebook';

describe('a notebook of a comparison', () => {
  it('writes paths as Python texts', () => {
    expect(attachCell(['/runs/a "b"'])).toBe('import marlnb as mnb\n\nmnb.attach([\n    "/runs/a \\"b\\"",\n])');
  });
  it('has the curves, scores, tests and differences of the page', () => {
    const [paths, ...cells] = comparisonCells(['/runs/a'], ['seed', 'algorithm.lr']);
    expect(paths).toContain('"/runs/a"');
    expect(paths).toContain('average_over = ["seed", "algorithm.lr"]');
    for (const part of ['refusals', 'curves', 'tests', 'differences']) {
      expect(cells.join('\n')).toContain(`comparison["${part}"]`);
    }
  });
});
