import { LabIcon } from '@jupyterlab/ui-components';

// three agents that see each other
const RUNS = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
<g class="jp-icon3" fill="none" stroke="#616161" stroke-width="1.8"><path d="M12 6.5 5.5 17M12 6.5 18.5 17M5.5 17h13"/></g>
<g class="jp-icon3" fill="#616161"><circle cx="12" cy="5.5" r="3"/><circle cx="5" cy="18" r="3"/><circle cx="19" cy="18" r="3"/></g>
</svg>`;

export const runsIcon = new LabIcon({ name: 'marlnb:icon', svgstr: RUNS });

// a sheet on its way to several others
const SUBMIT = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
<path class="jp-icon3" fill="#616161" d="M3 4h8v2H5v12h6v2H3zM13 7l6 5-6 5v-4H8v-2h5z"/><path class="jp-icon3" fill="#616161" d="M19 4h2v16h-2z"/>
</svg>`;

// jobs one below the other, of which the first runs
const QUEUE = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
<path class="jp-icon3" fill="#616161" d="M4 4l7 4-7 4zM13 7h8v2h-8zM4 14h17v2H4zM4 18h17v2H4z"/>
</svg>`;

export const queueIcon = new LabIcon({ name: 'marlnb:queue', svgstr: QUEUE });

export const submitIcon = new LabIcon({ name: 'marlnb:submit', svgstr: SUBMIT });
