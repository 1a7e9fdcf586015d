import { LabIcon } from '@jupyterlab/ui-components';

/** In the colour of JupyterLab's own icons; `shape` is drawn in a box of 24 by 24. */
function icon(name: string, shape: string): LabIcon {
  const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">${shape}</svg>`;
  return new LabIcon({ name: `marlnb:${name}`, svgstr });
}

function filled(path: string): string {
  return `<path class="jp-icon3" fill="#616161" d="${path}"/>`;
}

// three agents that see each other
export const runsIcon = icon(
  'icon',
  `<g class="jp-icon3" fill="none" stroke="#616161" stroke-width="1.8"><path d="M12 6.5 5.5 17M12 6.5 18.5 17M5.5 17h13"/></g>
<g class="jp-icon3" fill="#616161"><circle cx="12" cy="5.5" r="3"/><circle cx="5" cy="18" r="3"/><circle cx="19" cy="18" r="3"/></g>`
);

// a sheet on its way to several others
export const submitIcon = icon('submit', filled('M3 4h8v2H5v12h6v2H3zM13 7l6 5-6 5v-4H8v-2h5zM19 4h2v16h-2z'));

// jobs one below the other, of which the first runs
export const queueIcon = icon('queue', filled('M4 4l7 4-7 4zM13 7h8v2h-8zM4 14h17v2H4zM4 18h17v2H4z'));

// rows with their names
export const tableIcon = icon('table', filled('M3 4h18v4H3zM3 10h5v4H3zM10 10h11v4H10zM3 16h5v4H3zM10 16h11v4H10z'));

// pictures on a wall
export const galleryIcon = icon(
  'gallery',
  filled('M3 3v10h10V3zm1.5 8.5 2-3.5 1.5 2 1.5-2.5 2 4zM15 3v10h6V3zm1.5 1.5h3v7h-3zM3 15v6h6v-6zm1.5 1.5h3v3h-3zM11 15v6h10v-6zm1.5 1.5h7v3h-7z')
);

// a clock
export const hourIcon = icon(
  'hour',
  filled('M12 2a10 10 0 1 0 0 20 10 10 0 0 0 0-20zm0 2.2a7.8 7.8 0 1 1 0 15.6 7.8 7.8 0 0 1 0-15.6zM11 6.5h2v5.1l3.6 2.1-1 1.7-4.6-2.7z')
);
