import { Poll } from '@lumino/polling';
import { Signal } from '@lumino/signaling';
import type { Backend } from './backend';
import type { RunSummary, RunsAnswer } from './messages';

/**
 * A reading that takes long, as of very many runs, is repeated after this many times as long, but after 5 s at last. The
 * first reading does not count: it reads every file, and later ones only look for changes.
 */
const PAUSE_FACTOR = 4;
const MAX_PAUSE_MS = 5000;

/** The runs under the chosen folders, read again while a view of them is visible. */
export class RunsModel {
  constructor(private readonly backend: Backend) {
    backend.onReset = () => (this.isFresh = true);
    this.poll = new Poll({
      name: 'marlnb:runs',
      auto: false,
      factory: () => this.read(),
      frequency: { interval: this.intervalMs, backoff: true, max: 60_000 },
      standby: () => (document.hidden || this.viewers.size === 0 ? true : false)
    });
  }

  readonly changed = new Signal<this, void>(this);
  runs: RunSummary[] = [];
  problems: string[] = [];
  /** Why nothing could be read; empty if it could. */
  error = '';
  /** Whether every run has been read at least once. */
  isComplete = false;
  /** When the runs were last read, in milliseconds since 1970; 0: never. */
  readAt = 0;

  get folders(): readonly string[] {
    return this._folders;
  }

  configure(folders: readonly string[], intervalMs: number): void {
    this.intervalMs = intervalMs;
    this.poll.frequency = { ...this.poll.frequency, interval: intervalMs };
    if (folders.join('\n') !== this._folders.join('\n')) {
      this._folders = folders;
      this.byPath.clear();
      this.runs = [];
      this.isComplete = false;
      this.isFresh = true;
      this.refresh();
    }
  }

  get(path: string): RunSummary | undefined {
    return this.byPath.get(path);
  }

  /** A view is shown or hidden: without any, nothing is read. */
  setViewer(viewer: object, isVisible: boolean): void {
    if (isVisible) {
      this.viewers.add(viewer);
      if (!this.isStarted) {
        this.isStarted = true;
        void this.poll.start();
      }
      this.refresh();
    } else {
      this.viewers.delete(viewer);
    }
  }

  refresh(): void {
    if (this.isStarted && this.viewers.size > 0) {
      void this.poll.refresh();
    }
  }

  private async read(): Promise<void> {
    const start = performance.now();
    const isFirst = this.isFresh;
    try {
      let isComplete = false;
      while (!isComplete) {
        const fresh = this.isFresh;
        this.isFresh = false;
        const answer = await this.backend.request<RunsAnswer>('runs', { folders: this._folders, fresh });
        isComplete = answer.complete;
        this.merge(answer, fresh);
      }
      this.error = '';
      const pause = isFirst ? 0 : Math.min(MAX_PAUSE_MS, PAUSE_FACTOR * (performance.now() - start));
      this.poll.frequency = { ...this.poll.frequency, interval: Math.max(this.intervalMs, pause) };
    } catch (error) {
      this.isFresh = true;
      this.error = error instanceof Error ? error.message : String(error);
      this.changed.emit();
      throw error;
    }
  }

  private merge(answer: RunsAnswer, fresh: boolean): void {
    if (fresh) {
      this.unconfirmed = new Set(this.byPath.keys());
    }
    for (const run of answer.changed) {
      this.byPath.set(run.path, run);
      this.unconfirmed.delete(run.path);
    }
    const gone = answer.complete ? [...answer.removed, ...this.unconfirmed] : answer.removed;
    gone.forEach(path => this.byPath.delete(path));
    if (answer.complete) {
      this.unconfirmed.clear();
    }
    this.problems = answer.problems;
    this.isComplete ||= answer.complete;
    this.readAt = Date.now();
    this.error = '';
    if (answer.changed.length > 0 || gone.length > 0) {
      this.runs = [...this.byPath.values()];
    }
    this.changed.emit();
  }

  private intervalMs = 500;
  private readonly poll: Poll;
  private readonly byPath = new Map<string, RunSummary>();
  private readonly viewers = new Set<object>();
  /** Runs that were known before a fresh reading and have not been read again yet. */
  private unconfirmed = new Set<string>();
  private _folders: readonly string[] = ['.'];
  private isFresh = true;
  private isStarted = false;
}
