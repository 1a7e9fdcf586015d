"""marlnb's analyses as they answer a case, one file each; a file registers its own by `@analysis`."""
