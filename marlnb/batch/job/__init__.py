"""One job: a notebook executed in a folder of its own."""
