"""Jobs on this machine: what it has, who has taken it, and the process that brings a submission to its end."""
