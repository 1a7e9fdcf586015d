export * from './controls';
export * from './curveData';
export * from './curves';
export * from './format';
export type { Marker } from './plot';
export * from './smoothing';
export * from './sparkline';
export * from './theme';
export * from './virtualList';
