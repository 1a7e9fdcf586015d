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

/** Four significant digits, and whole numbers in full below a million: `0.01234`, `11634`, `1.163e+6`. */
export function formatNumber(value: number): string {
  const rounded = Number(value.toPrecision(4));
  const size = Math.abs(rounded);
  if (size >= 1e4 && Math.abs(value) < 999_999.5) {
    return value.toFixed(0);
  }
  return isWrittenWithExponent(size) ? rounded.toExponential() : String(rounded);
}

function isWrittenWithExponent(size: number): boolean {
  return size !== 0 && (size < 1e-4 || size >= 1e6);
}

/** The labels of an axis whose ticks are `step` apart, with as many digits as that needs: `0`, `0.25`, `0.50`. */
export function formatTicks(values: readonly number[], step: number): string[] {
  const size = Math.max(0, ...values.map(Math.abs));
  const exponent = isWrittenWithExponent(size) ? Math.floor(Math.log10(size)) : 0;
  return withUnit(values, step, 10 ** exponent, exponent ? `e${exponent}` : '');
}

/** The same for counts, in thousands or millions: `0`, `0.5M`, `1.0M`; empty for what is no whole number. */
export function formatCountTicks(values: readonly number[], step: number): string[] {
  const size = Math.max(0, ...values.map(Math.abs));
  const [unit, name] = size >= 1e6 ? [1e6, 'M'] : size >= 1000 ? [1000, 'k'] : [1, ''];
  const labels = withUnit(values, unit === 1 ? 1 : step, unit, name);
  return values.map((value, index) => (Number.isInteger(value) ? (labels[index] ?? '') : ''));
}

function withUnit(values: readonly number[], step: number, unit: number, name: string): string[] {
  const [mantissa = '', exponent = ''] = Number((step / unit).toPrecision(3)).toExponential().split('e');
  const digits = Math.max(0, mantissa.replace(/^\d\.?/, '').length - Number(exponent));
  return values.map(value => (value === 0 ? '0' : `${(value / unit).toFixed(digits)}${name}`));
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
