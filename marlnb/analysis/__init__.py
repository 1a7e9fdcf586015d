"""Questions put to recordings and policies: attribution and decoding."""
