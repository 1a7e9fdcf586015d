"""What agents live in: one VectorEnv protocol and its sources. Light to import: workers use it without torch."""
