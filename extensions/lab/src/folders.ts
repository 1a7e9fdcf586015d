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

/** A folder; if it is in a run, which can be deleted with all its files, the one that contains the run. */
export async function outsideOfRuns(folder: string, isRun: (folder: string) => Promise<boolean>): Promise<string> {
  let outside = folder;
  for (let part = folder; part !== ''; part = parentOf(part)) {
    if (await isRun(part)) {
      outside = parentOf(part);
    }
  }
  return outside;
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')));
}

function withSlash(folder: string): string {
  return folder.endsWith('/') ? folder : `${folder}/`;
}
