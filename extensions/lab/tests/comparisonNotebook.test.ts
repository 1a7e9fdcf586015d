import { describe, expect, it } from 'vitest';
import { attachCell, comparisonCells, mapCells } from '../src/comparisonNotebook';
import type { RunMapAnswer } from '../src/messages';

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
  it('maps the units of the agent, and the recording, of the page', () => {
    const map = { paths: ['/runs/a', '/runs/b'], site: 'a/actor/hidden_2', agent: 'a_1', recording: '/runs/b/recordings/map-9.h5' };
    const [opened, mapped] = mapCells(map as RunMapAnswer);
    expect(opened).toContain('    "/runs/a",\n    "/runs/b",\n');
    expect(opened).toContain('shared = mnb.Recording.open("/runs/b/recordings/map-9.h5")');
    expect(mapped).toContain('site = "a/actor/hidden_2"\nagent = "a_1"\n');
  });
});
