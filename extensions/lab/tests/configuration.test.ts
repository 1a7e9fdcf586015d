import { describe, expect, it } from 'vitest';
import { flatten, valueText } from '../src/configuration';

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
    expect([valueText(null), valueText(undefined), valueText(0), valueText('')]).toEqual(['null', '', '0', '']);
  });
});
