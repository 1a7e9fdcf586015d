// What the kernel's marlnb.lab answers; the names are those of Python.

export type RunState =
  | 'created'
  | 'running'
  | 'paused'
  | 'interrupted'
  | 'stopped'
  | 'complete'
  | 'failed'
  | 'unreadable';

/** marlnb.training.runs.listing.RunSummary */
export interface RunSummary {
  path: string;
  name: string;
  group: string;
  state: RunState;
  env: string;
  algorithm: string;
  league: string;
  seed: number | null;
  frames: number;
  frames_total: number | null;
  frames_per_second: number | null;
  eta_s: number | null;
  host: string;
  updated: number | null;
  score: number | null;
  score_of: string;
  curve: number[];
  tags: string[];
  note: string;
  problem: string;
}

export interface RunsAnswer {
  changed: RunSummary[];
  removed: string[];
  complete: boolean;
  problems: string[];
}
