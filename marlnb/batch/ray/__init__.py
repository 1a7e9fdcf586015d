"""Ray's job API, and the record of what was submitted to it."""
