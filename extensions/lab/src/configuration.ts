/** A configuration as pairs of joined names, as `algorithm.lr`, and values as JSON; texts stay plain. */
export function flatten(value: Record<string, unknown>, prefix = ''): [string, string][] {
  return Object.entries(value).flatMap(([key, item]): [string, string][] => {
    const isPart = typeof item === 'object' && item !== null && !Array.isArray(item) && Object.keys(item).length > 0;
    return isPart ? flatten(item as Record<string, unknown>, `${prefix}${key}.`) : [[`${prefix}${key}`, valueText(item)]];
  });
}

/** A setting's value as text; empty if the run does not have the setting. */
export function valueText(value: unknown): string {
  return typeof value === 'string' ? value : value === undefined ? '' : JSON.stringify(value);
}
