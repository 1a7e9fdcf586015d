export const CommandIDs = {
  openRun: 'marlnb:open-run',
  openRuns: 'marlnb:open-runs',
  refresh: 'marlnb:refresh'
} as const;
