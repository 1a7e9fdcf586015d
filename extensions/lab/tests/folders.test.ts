import { describe, expect, it } from 'vitest';
import { absolute, below } from '../src/folders';

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
