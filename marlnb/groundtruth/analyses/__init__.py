"""marlnb's analyses applied to an instance, one file each. `@analysis` registers them."""
