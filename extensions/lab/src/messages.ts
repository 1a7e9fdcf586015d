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
  evolution: string;
  seed: number | null;
  frames: number;
  frames_total: number | null;
  frames_per_second: number | null;
  eta_s: number | null;
  host: string;
  updated: number | null;
  score: number | null;
  score_of: string;
  /** By group, where groups are rewarded differently; else empty. */
  returns: Record<string, number>;
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

export interface Series {
  x: number[];
  y: number[];
}

/** marlnb.lab.run_page.run_page; a part that cannot be read is null. */
export interface RunPageAnswer {
  summary: RunSummary;
  requests: string[];
  experiment: Record<string, unknown> | null;
  /** `hidden`: those of `returns` that are not drawn at first. */
  curves: { returns: Record<string, Series>; numbers: Record<string, Series>; hidden: string[] } | null;
  events: string[] | null;
  checkpoints:
    | {
        iteration: number;
        path: string;
        size_bytes: number;
        frames?: number | null;
        returns?: Record<string, number>;
        problem?: string;
      }[]
    | null;
  recordings: { name: string; path: string; size_bytes: number }[] | null;
  problems: string[];
}

/** marlnb.lab.run_page.run_code */
export interface RunCode {
  command: string;
  code: string;
  attach: string;
  /** Records some episodes, and opens them in the microscope. */
  record: string;
  microscope: Record<string, string>;
}

export type Action = 'pause' | 'continue' | 'save' | 'stop' | 'resume';

/** marlnb.lab.compare.compare */
export interface Comparison {
  /** `name`: the last parts of the path, as many as tell the runs apart. */
  runs: { path: string; name: string; problem: string }[];
  /** Settings that can be averaged over. */
  choices: string[];
  differences: Record<string, Record<string, unknown>>;
  curves: {
    label: string;
    runs: string[];
    x: number[];
    value: number[];
    low: number[] | null;
    high: number[] | null;
    score: [number, number | null, number | null];
    scores: number[];
  }[];
  tests: { better: string; worse: string; probability: [number, number, number]; p: number }[];
  refusals: string[];
}

/** marlnb.lab.run_map.map_of_runs; runs are named by their index in `paths`. */
export interface RunMapAnswer {
  paths: string[];
  names: string[];
  site: string;
  agent: string;
  choices: [site: string, agent: string][];
  returns: (number | null)[];
  positions: [number, number][];
  explained: number;
  verdict: string;
  warnings: string[];
  recording: string;
  pairs: {
    a: number;
    b: number;
    similarity: number;
    low: number;
    high: number;
    shuffled: number;
    equal_returns: boolean;
    episode: number;
    step: number;
  }[];
}

/** marlnb.lab.batches.batch_form */
export interface BatchForm {
  parameters: { name: string; takes: string; code: string; help: string; required: boolean }[];
  /** Keys of a profile that have a field. */
  resources: { name: string; help: string }[];
  /** By name, the values of these keys. */
  profiles: Record<string, Record<string, string>>;
  /** By profile, those of these keys that its executor does not support. */
  unsupported: Record<string, string[]>;
}

/** marlnb.lab.batches.run_batch */
export interface BatchAnswer {
  command: string;
  output: string;
  ok: boolean;
  batch: string;
}

export type JobState =
  | 'waiting'
  | 'queued'
  | 'starting'
  | 'running'
  | 'complete'
  | 'failed'
  | 'stopped'
  | 'interrupted';

/** A job, as marlnb.lab.queue shows it. */
export interface QueuedJob {
  name: string;
  state: JobState;
  reason: string;
  progress: string;
  attempt: number;
  seconds: number;
  id: string;
  node: string;
  time_left_s: number | null;
  /** Path of the executed notebook; empty while there is none. */
  notebook: string;
}

export interface QueuedBatch {
  path: string;
  name: string;
  notebook: string;
  executor: string;
  summary: string;
  jobs: QueuedJob[];
}

/** marlnb.lab.queue.Queue.read */
export interface QueueAnswer {
  batches: QueuedBatch[];
  problems: string[];
  asked_s: Record<string, number>;
}

/** marlnb.lab.queue.Queue.read_job */
export interface JobAnswer {
  job: QueuedJob;
  folder: string;
  run: string;
  output: string;
  failure: string;
  rerun_command: string;
  problem: string;
}
