import { nullTranslator } from '@jupyterlab/translation';
import { render } from 'preact';
import { describe, expect, it } from 'vitest';
import { Notice } from '../src/notice';
import type { RunsModel } from '../src/runsModel';

describe('the notice of the runs panel', () => {
  it('has a line for each folder that cannot be read, and for an empty list', () => {
    const problems = ['/home/ann/my runs does not exist', '/root/none does not exist'];
    const model = { error: '', readAt: 1, isComplete: true, runs: [], problems } as unknown as RunsModel;
    const box = document.createElement('div');
    render(<Notice model={model} isSearching={true} shown={0} trans={nullTranslator.load('marlnb')} />, box);
    const lines = [...box.querySelectorAll('[role=status] > *')].map(line => line.textContent);
    expect(lines).toEqual([...problems, 'No run matches.']);
  });
});
