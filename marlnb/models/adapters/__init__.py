"""Networks that were made elsewhere, with sites."""
