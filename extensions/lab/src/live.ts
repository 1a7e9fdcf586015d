import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';

/** An answer of the kernel that is asked for again while its view is visible. */
export class Live<Answer> {
  constructor(name: string, ask: () => Promise<Answer>, intervalMs: number) {
    this.poll = new Poll({
      name,
      auto: false,
      factory: async () => {
        try {
          this.answer = await ask();
          this.error = '';
        } catch (error) {
          this.error = messageOf(error);
          throw error;
        } finally {
          this.changed.emit();
        }
      },
      frequency: { interval: intervalMs, backoff: true, max: 60_000 },
      standby: () => document.hidden || !this.isVisible
    });
  }

  readonly changed = new Signal<this, void>(this);
  answer: Answer | null = null;
  /** Why the last request failed; empty if it did not. */
  error = '';

  setVisible(isVisible: boolean): void {
    this.isVisible = isVisible;
    if (isVisible && !this.isStarted) {
      this.isStarted = true;
      void this.poll.start();
    } else if (isVisible) {
      this.refresh();
    }
  }

  refresh(): void {
    void this.poll.refresh();
  }

  dispose(): void {
    this.isVisible = false;
    this.poll.dispose();
    Signal.clearData(this);
  }

  private readonly poll: Poll;
  private isVisible = false;
  private isStarted = false;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
