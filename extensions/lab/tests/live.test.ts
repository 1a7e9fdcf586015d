import { describe, expect, it, vi } from 'vitest';
import { Live } from '../src/live';

const pause = (ms: number): Promise<void> => new Promise(resolve => setTimeout(resolve, ms));

describe('a live answer', () => {
  it('is asked for while its view is visible, and never while it is hidden', async () => {
    const ask = vi.fn(() => Promise.resolve(0));
    const live = new Live('test', ask, 10);
    await pause(100);
    expect(ask).not.toHaveBeenCalled();
    live.setVisible(true);
    await vi.waitFor(() => expect(ask.mock.calls.length).toBeGreaterThan(2));
    live.setVisible(false);
    await pause(50); // the last one may be under way
    const count = ask.mock.calls.length;
    await pause(200);
    expect(ask).toHaveBeenCalledTimes(count);
    live.dispose();
  });
});
