"""Jobs on this machine: its resources, their use, and the process that runs a submission."""
