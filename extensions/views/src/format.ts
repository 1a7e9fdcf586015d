// Numbers for people, in the same words as marlnb.display.formatting.

/** `999`, `12.3k`, `1.25M`. */
export function formatCount(value: number): string {
  if (value >= 999_500) {
    return `${(value / 1e6).toFixed(2)}M`;
  }
  return value >= 1000 ? `${(value / 1e3).toFixed(1)}k` : value.toFixed(0);
}

/** A whole number with its thousands apart: `12,345`. */
export function formatWhole(value: number): string {
  return Math.round(value).toLocaleString('en-US');
}

/** A duration as a clock shows it: `0:42`, `12:05`, `3:07:00`. */
export function formatClock(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  const [hours, minutes, rest] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  const two = (value: number): string => String(value).padStart(2, '0');
  return hours > 0 ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/** Powers of 1000 with three significant digits: `512 B`, `3.14 kB`, `29.7 GB`. */
export function formatBytes(size: number): string {
  let value = size;
  for (const unit of ['B', 'kB', 'MB', 'GB']) {
    if (value < 999.5) {
      return `${Number(value.toPrecision(3))} ${unit}`;
    }
    value /= 1000;
  }
  return `${Number(value.toPrecision(3))} TB`;
}

/** Four significant digits, as tables of marlnb show numbers. */
export function formatNumber(value: number): string {
  return String(Number(value.toPrecision(4)));
}

/** Text from outside, in which control characters and those that turn the direction of text are shown as \uFFFD. */
export function printable(text: string): string {
  return text.replace(/[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/gu, '\uFFFD');
}

/** How long ago, in one unit. */
export function formatAge(seconds: number): string {
  const units: [number, string][] = [[86_400, 'd'], [3600, 'h'], [60, 'min']];
  for (const [size, unit] of units) {
    if (seconds >= size) {
      return `${Math.floor(seconds / size)} ${unit}`;
    }
  }
  return `${Math.max(0, Math.floor(seconds))} s`;
}
