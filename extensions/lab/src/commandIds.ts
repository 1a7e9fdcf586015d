export const CommandIDs = {
  openRun: 'marlnb:open-run',
  openRuns: 'marlnb:show-runs',
  openTable: 'marlnb:open-table',
  compare: 'marlnb:compare',
  act: 'marlnb:act',
  showQueue: 'marlnb:show-queue',
  openJob: 'marlnb:open-job',
  cancelJobs: 'marlnb:cancel-jobs',
  requeueJobs: 'marlnb:requeue-jobs',
  submitBatch: 'marlnb:submit-batch',
  openFile: 'marlnb:open-file',
  deleteRuns: 'marlnb:delete-runs',
  insertCell: 'marlnb:insert-cell',
  newNotebook: 'marlnb:new-notebook',
  submit: 'marlnb:submit',
  copy: 'marlnb:copy',
  showFolder: 'marlnb:show-folder'
} as const;
