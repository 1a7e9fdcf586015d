"""Several training runs by one command: run one after the other or in parallel processes, resumable."""
