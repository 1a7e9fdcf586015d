import { useEffect, useState } from 'preact/hooks';

/** Distinct for colour-blind readers and on both themes (Okabe and Ito). */
export const COLOURS = ['#0072B2', '#E69F00', '#009E73', '#CC79A7', '#56B4E9', '#D55E00', '#8C8C8C'];

export function colour(index: number): string {
  return COLOURS[index % COLOURS.length] ?? '#8C8C8C';
}

const DASHES: readonly (readonly number[])[] = [[], [8, 3], [2, 3], [8, 3, 2, 3], [12, 4]];

/** Lengths of strokes and gaps: the first lines are solid, those whose colour repeats are not. */
export function dash(index: number): number[] {
  return [...(DASHES[Math.floor(index / COLOURS.length) % DASHES.length] ?? [])];
}

/** A colour with transparency, from `#rrggbb`. */
export function faint(hex: string, alpha: number): string {
  const channels = [1, 3, 5].map(start => parseInt(hex.slice(start, start + 2), 16));
  return `rgba(${channels.join(', ')}, ${alpha})`;
}

/** The value of one of JupyterLab's CSS variables, for a canvas, which knows none. */
export function themeColour(element: Element, name: string, fallback: string): string {
  return getComputedStyle(element).getPropertyValue(name).trim() || fallback;
}

/** Changes when JupyterLab's theme does. */
export function useThemeName(): string {
  const read = (): string => document.body.dataset['jpThemeName'] ?? '';
  const [name, setName] = useState(read);
  useEffect(() => {
    const observer = new MutationObserver(() => setName(read()));
    observer.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-name'] });
    return () => observer.disconnect();
  }, []);
  return name;
}
