import { describe, expect, it } from 'vitest';
import { cellText, flatten } from '../src/configuration';

describe('a configuration', () => {
  it('has joined names, and values as JSON', () => {
    const settings = { env: { name: 'mpe/simple_tag', num_good: 2 }, critic: null, seeds: [1, 2], models: {} };
    expect(flatten(settings)).toEqual([
      ['env.name', 'mpe/simple_tag'],
      ['env.num_good', '2'],
      ['critic', 'null'],
      ['seeds', '[1,2]'],
      ['models', '{}']
    ]);
  });
  it('leaves the cell of a run without the setting empty', () => {
    expect([cellText(null), cellText(undefined), cellText(0), cellText('')]).toEqual(['', '', '0', '']);
  });
});
