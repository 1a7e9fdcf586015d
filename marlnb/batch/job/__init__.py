"""One job: a notebook executed in its own folder."""
