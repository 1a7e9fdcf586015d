"""Recording a rollout: what to record, the dry run, and the recorder."""
