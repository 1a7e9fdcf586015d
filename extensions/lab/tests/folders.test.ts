import { describe, expect, it } from 'vitest';
import { absolute, below, outsideOfRuns } from '../src/folders';

describe('paths below the folder of JupyterLab', () => {
  it('are relative to it', () => {
    expect(below('/home/me', '/home/me/runs/a')).toBe('runs/a');
    expect(below('/home/me', '/home/me2/runs')).toBeNull();
    expect(absolute('/home/me', 'runs/a')).toBe('/home/me/runs/a');
  });
  it('can be below the root', () => {
    expect(below('/', '/home/me/runs/a')).toBe('home/me/runs/a');
    expect(absolute('/', 'runs/a')).toBe('/runs/a');
  });
});

describe('the folder of a new notebook', () => {
  const runs = ['runs/a', 'runs/a/jobs/b', 'c'];
  const outside = (folder: string): Promise<string> => outsideOfRuns(folder, path => Promise.resolve(runs.includes(path)));
  it('is the one that is shown', async () => {
    expect(await outside('')).toBe('');
    expect(await outside('runs')).toBe('runs');
  });
  it('is in no run', async () => {
    expect(await outside('runs/a')).toBe('runs');
    expect(await outside('runs/a/jobs/b/recordings')).toBe('runs');
    expect(await outside('c')).toBe('');
  });
});
