export * from './curves';
export * from './format';
export * from './smoothing';
export * from './sparkline';
export * from './theme';
export * from './virtualList';
