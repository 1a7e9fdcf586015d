import type { RunSummary } from '../src/messages';

export const RUN: RunSummary = {
  path: '/runs/both/jobs/algorithm=mappo,seed=3',
  name: 'both/jobs/algorithm=mappo,seed=3',
  group: 'both/jobs',
  state: 'running',
  env: 'mpe/simple_spread',
  algorithm: 'mappo',
  league: '',
  evolution: '',
  seed: 3,
  frames: 450_000,
  frames_total: 1_000_000,
  frames_per_second: 5000,
  eta_s: 200,
  host: 'node7',
  updated: 10,
  score: -20.1234,
  score_of: '',
  returns: {},
  curve: [-40, -20],
  tags: ['baseline'],
  note: '',
  problem: ''
};
