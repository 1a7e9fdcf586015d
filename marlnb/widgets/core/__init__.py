"""Parts that all widgets share."""
