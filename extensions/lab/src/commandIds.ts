export const CommandIDs = {
  openRun: 'marlnb:open-run',
  openRuns: 'marlnb:show-runs',
  openTable: 'marlnb:open-table',
  compare: 'marlnb:compare',
  act: 'marlnb:act',
  deleteRuns: 'marlnb:delete-runs',
  insertCell: 'marlnb:insert-cell',
  newNotebook: 'marlnb:new-notebook',
  submit: 'marlnb:submit',
  copy: 'marlnb:copy',
  showFolder: 'marlnb:show-folder'
} as const;
