export * from './format';
export * from './sparkline';
export * from './virtualList';
