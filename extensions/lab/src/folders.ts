/** Paths below the folder that JupyterLab shows, which can be the root of the file system. */

/** The path relative to the folder; null: it is not below it. */
export function below(folder: string, path: string): string | null {
  const start = withSlash(folder);
  return path.startsWith(start) ? path.slice(start.length) : null;
}

/** The absolute path of a relative one. */
export function absolute(folder: string, path: string): string {
  return withSlash(folder) + path;
}

function withSlash(folder: string): string {
  return folder.endsWith('/') ? folder : `${folder}/`;
}
