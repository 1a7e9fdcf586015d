"""How the network of a config is built, and the dry run of a kind that a user wrote."""
