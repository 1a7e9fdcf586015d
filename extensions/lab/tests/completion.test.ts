import { describe, expect, it } from 'vitest';
import { overrideAt } from '../src/completion';

function at(text: string): ReturnType<typeof overrideAt> {
  return overrideAt(text, text.length);
}

describe('the override at the cursor', () => {
  it('is found inside the texts of compose', () => {
    expect(at('Experiment.compose("env=mpe/si')).toEqual({ part: 'env', start: 24 });
    expect(at("x = mnb.Experiment.compose(\n  'env=a',\n  'algorithms.adversary=ma")).toMatchObject({ part: 'algorithm' });
    expect(at('compose("critic=')).toMatchObject({ part: 'model' });
  });
  it('is not found elsewhere', () => {
    expect(at('print("env=mpe/si')).toBeNull();
    expect(at('compose("env=a")\nprint("env=')).toBeNull();
    expect(at('compose("env.max_cycles=')).toBeNull();
    expect(at('compose(env=')).toBeNull();
  });
});
